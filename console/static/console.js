// What the pages do in a browser: times as chosen, charts, keys, dark and light. Without it they can be read all the same.
"use strict";

const kept = {
  get(name) { try { return localStorage.getItem(name); } catch (_) { return null; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch (_) { /* only for this page then */ } },
};

// Times: relative, local or UTC.

const MODES = ["UTC", "local", "relative"];
const UNITS = [["day", 86400000], ["hour", 3600000], ["minute", 60000], ["second", 1000]];
const ago = new Intl.RelativeTimeFormat("en", { numeric: "always" });
let mode = MODES.includes(kept.get("times")) ? kept.get("times") : "UTC";

function relative(ms) {
  const off = ms - Date.now();
  const [unit, size] = UNITS.find(([, size]) => Math.abs(off) >= size) || UNITS[3];
  return ago.format(Math.round(off / size), unit);
}

function timeText(ms, utc) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime()) || mode === "UTC") return utc;
  if (mode === "relative") return relative(ms);
  const two = (n) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

function showTimes() {
  for (const time of document.querySelectorAll("time[data-ms]")) {
    const text = timeText(Number(time.dataset.ms), time.dateTime);
    if (time.textContent !== text) time.textContent = text;
    time.title = time.dateTime;
  }
  const button = document.getElementById("times");
  button.textContent = mode;
  button.setAttribute("aria-label", `Times are ${mode}; press to change`);
}

// Charts: each draws what an element of the live part carries.

const charts = new Map();
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seconds = (list) => list.map((ms) => ms / 1000);

const LINES = {
  rate: ["released/s"],
  lateness: ["p50 ms", "p99 ms"],
  pending: ["pending"],
};

function dataOf(kind, source) {
  const points = JSON.parse(source.dataset.points);
  if (kind !== "ahead") return [seconds(points[0]), ...points.slice(1)];
  const start = Number(source.dataset.start) / 1000;
  return [points.map((_, at) => start + at), points];
}

function options(kind, figure) {
  const bars = kind === "ahead";
  const paint = ["--accent", "--warn"];
  const axis = { stroke: color("--text"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
  return {
    width: figure.clientWidth, height: bars ? 260 : 160,
    tzDate: (at) => (mode === "local" ? new Date(at * 1000) : uPlot.tzDate(new Date(at * 1000), "UTC")),
    scales: { x: bars ? {} : { range: (_, low, high) => [Math.min(low, high - 60), high] }, y: { range: (_, _low, high) => [0, Math.max(1, high * 1.05)] } },
    axes: [axis, { ...axis, size: 70 }],
    legend: { show: !bars },
    cursor: { drag: { x: bars, y: false, setScale: false } },
    series: [{}, ...(bars ? ["due"] : LINES[kind]).map((label, at) => ({
      label, stroke: color(paint[at]), width: 1.5, points: { show: false },
      ...(bars ? { fill: color("--accent"), paths: uPlot.paths.bars({ size: [0.9, 60], align: 1 }) } : {}),
    }))],
    hooks: bars ? { setSelect: [choose] } : {},
  };
}

function choose(chart) {
  if (chart.select.width < 2) return;
  const at = (x) => Math.floor(chart.posToVal(x, "x"));
  const address = new URL(location.href);
  address.searchParams.set("from", at(chart.select.left) * 1000);
  address.searchParams.set("to", Math.max(at(chart.select.left + chart.select.width), at(chart.select.left) + 1) * 1000);
  location.assign(address);
}

function draw() {
  if (typeof uPlot === "undefined") return;
  for (const figure of document.querySelectorAll("[data-chart]")) {
    const source = document.getElementById(figure.dataset.from);
    if (!source) continue;
    const data = dataOf(figure.dataset.chart, source);
    let chart = charts.get(figure);
    if (!chart) {
      chart = new uPlot(options(figure.dataset.chart, figure), data, figure);
      charts.set(figure, chart);
    } else {
      chart.setData(data);
    }
    figure.dataset.points = data[0].length;
  }
}

function drawAnew() {
  for (const chart of charts.values()) chart.destroy();
  charts.clear();
  draw();
}

// Keys: / to the filter, or where there is none to the search, g and a letter to a page.

let going = -Infinity;

function onKey(event) {
  if (kept.get("keys") === "off" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "/") {
    const filter = document.querySelector("main input[type=search]") || document.getElementById("search");
    if (filter) { filter.focus(); event.preventDefault(); }
  } else if (event.key === "g" && event.timeStamp - going > 1000) {
    going = event.timeStamp;
  } else if (event.timeStamp - going < 1000) {
    going = -Infinity;
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
  }
}

function onTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  kept.set("theme", root.dataset.theme);
  drawAnew();
}

function onMode() {
  mode = MODES[(MODES.indexOf(mode) + 1) % MODES.length];
  kept.set("times", mode);
  showTimes();
  drawAnew();
}

// A filter's field: an answer replaces it as it was when the answer was asked for. What was typed since is put back, and
// asked for next, since htmx hears a new field only once it has settled.

let sent = null;
let typed = null;

function fieldInUse() {
  const field = document.activeElement;
  return field && field.matches(".filter input[type=search]") ? field : null;
}

function onRequest() {
  const field = fieldInUse();
  sent = field && field.value;
}

function beforeSwap() {
  const field = fieldInUse();
  typed = field && { id: field.id, value: field.value, start: field.selectionStart, end: field.selectionEnd };
}

function afterSwap() {
  const field = typed && document.getElementById(typed.id);
  if (!field || field.value === typed.value) return;
  field.value = typed.value;
  field.setSelectionRange(typed.start, typed.end);
}

function askForTyped() {
  const field = fieldInUse();
  if (typed && field && field.id === typed.id && field.value !== sent) field.dispatchEvent(new Event("input", { bubbles: true }));
  typed = null;
}

// Live updates: paused by the visitor, and while the page is hidden, since a browser has few connections to a host.

let paused = false;

function live(on) {
  const region = document.getElementById("live");
  if (!region || typeof htmx === "undefined") return;
  if (on) htmx.ajax("GET", location.href, { target: "#live", select: "#live", swap: "outerHTML" });
  else htmx.trigger(region, "htmx:beforeCleanupElement");
}

function onPause() {
  paused = !paused;
  const button = document.getElementById("pause");
  button.setAttribute("aria-pressed", String(paused));
  button.textContent = paused ? "Go on" : "Pause";
  live(!paused);
}

function onHidden() {
  if (!paused) live(document.visibilityState === "visible");
}

function showKeys() {
  const on = kept.get("keys") !== "off";
  const button = document.getElementById("keys");
  button.setAttribute("aria-pressed", String(on));
  button.textContent = on ? "keys on" : "keys off";
}

function away(is) { document.getElementById("away").hidden = !is; }

document.addEventListener("DOMContentLoaded", () => {
  if (typeof Idiomorph !== "undefined") Idiomorph.defaults.ignoreActiveValue = true;
  document.getElementById("times").addEventListener("click", onMode);
  document.getElementById("theme").addEventListener("click", onTheme);
  document.getElementById("pause").addEventListener("click", onPause);
  document.getElementById("keys").addEventListener("click", () => {
    kept.set("keys", kept.get("keys") === "off" ? "on" : "off");
    showKeys();
  });
  document.addEventListener("visibilitychange", onHidden);
  document.addEventListener("keydown", onKey);
  showKeys();
  document.body.addEventListener("htmx:beforeRequest", onRequest);
  document.body.addEventListener("htmx:beforeSwap", beforeSwap);
  document.body.addEventListener("htmx:afterSwap", afterSwap);
  document.body.addEventListener("htmx:afterSettle", () => { askForTyped(); showTimes(); draw(); });
  document.body.addEventListener("htmx:sseMessage", () => { away(false); showTimes(); draw(); });
  document.body.addEventListener("htmx:sseError", () => away(true));
  document.body.addEventListener("htmx:sseOpen", () => away(false));
  addEventListener("resize", () => { for (const [figure, chart] of charts) chart.setSize({ width: figure.clientWidth, height: chart.height }); });
  setInterval(() => { if (mode === "relative") showTimes(); }, 1000);
  showTimes();
  draw();
});
