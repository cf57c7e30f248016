"""The figures of a run as one JSON object, and the tables made from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from tarry.bench.machine import caption
from tarry.bench.side_by_side.cpu import ROLES
from tarry.bench.side_by_side.messages import Verdict
from tarry.bench.side_by_side.rows import COSTS, ROWS, Cost, Row
from tarry.bench.side_by_side.system import System
from tarry.bench.side_by_side.turns import Results

OURS: Final = "tarry"
HIGHLIGHTS: Final = (
    "schedule_1000x100", "schedule_one", "lateness_1k", "mass_100k", "failover", "cpu_schedule_one"
)  # fmt: skip
"""The rows of the README; bench/NOTES.md has all."""
NOT_HIGHLIGHTED: Final = ("redis_everysec", "beanstalkd", "dramatiq")
"""The systems without a column in the README, which has no room for all."""
# key -> row and figure, of tarry's median
KEYS: Final = {
    "schedule_1000x100_per_s": ("schedule_1000x100", "per_s"),
    "schedule_1000x1k_per_s": ("schedule_1000x1k", "per_s"),
    "schedule_100x100_per_s": ("schedule_100x100", "per_s"),
    "schedule_tasks32_per_s": ("schedule_tasks32", "per_s"),
    "schedule_one_p50_ms": ("schedule_one", "p50_ms"),
    "lateness_1k_p50_ms": ("lateness_1k", "p50_ms"),
    "lateness_1k_p99_ms": ("lateness_1k", "p99_ms"),
    "lateness_5k_p50_ms": ("lateness_5k", "p50_ms"),
    "lateness_5k_p99_ms": ("lateness_5k", "p99_ms"),
    "mass_100k_s": ("mass_100k", "s"),
    "mass_1m_s": ("mass_1m", "s"),
    "cancel_per_s": ("cancel", "per_s"),
    "failover_s": ("failover", "s"),
    "ram_bytes_per_pending": ("pending", "ram_bytes"),
    "disk_bytes_per_pending": ("pending", "disk_bytes"),
    "restart_s": ("pending", "restart_s"),
}
# key -> row and peer, the ratio of the rates in the same turns
RATIOS: Final = {
    "schedule_1000x100_vs_etcd3": ("schedule_1000x100", "etcd3"),
    "schedule_1000x100_vs_rabbit_quorum": ("schedule_1000x100", "rabbit_quorum"),
    "schedule_1000x1k_vs_etcd3": ("schedule_1000x1k", "etcd3"),
    "schedule_100x100_vs_etcd3": ("schedule_100x100", "etcd3"),
    "schedule_tasks32_vs_etcd3": ("schedule_tasks32", "etcd3"),
}


def outcome(
    results: Results, systems: Sequence[System], skipped: Mapping[str, str], machine: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything measured; the flat keys are tarry's own."""
    flat: dict[str, Any] = {}
    for key, (row, figure) in KEYS.items():
        spread = results.cell(row, OURS).figures().get(figure)
        if spread is not None:
            flat[key] = rounded(spread.median)
    for key, (row, peer) in RATIOS.items():
        ratio = results.ratio(row, OURS, peer, "per_s")
        if ratio is not None:
            flat[key] = rounded(ratio)
    for cost in COSTS:
        spread = results.cell(cost.row, OURS).figures().get(cost.figure)
        if spread is not None:
            flat[f"{cost.name}_s"] = rounded(spread.median)
    verdicts = {system.name: _verdict(results, system.name) for system in systems}
    flat |= asdict(verdicts.get(OURS, Verdict()))
    rows: dict[str, Any] = {}
    for (row, system), cell in results.cells.items():
        spreads = {name: _rounded(asdict(spread)) for name, spread in cell.figures().items()}
        rows.setdefault(row, {})[system] = {
            "turns": len(cell.turns), "failures": cell.failures, "failed": cell.failed,
            "seconds": rounded(cell.seconds), "share": rounded(cell.share),
            **asdict(cell.verdict()), "figures": spreads,
        }  # fmt: skip
    rows |= _costs(rows)
    peers = {
        system.name: {
            "version": system.version(),
            **asdict(system.durability),
            "mark": system.durability.mark,
            "note": system.lateness_note,
            **asdict(verdicts[system.name]),
        }
        for system in systems
    }
    return {**flat, "machine": dict(machine), "systems": peers, "skipped": dict(skipped), "rows": rows}


def _costs(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of CPU time, whose figures they take from the rows that have them."""
    costs: dict[str, Any] = {}
    for cost in COSTS:
        for system, cell in rows.get(cost.row, {}).items():
            if cost.figure in cell["figures"]:
                names = [name for name in cell["figures"] if name.startswith("cpu_")]
                taken = {name: cell["figures"].pop(name) for name in names}
                costs.setdefault(cost.name, {})[system] = {**cell, "figures": taken}
    return costs


def _verdict(results: Results, system: str) -> Verdict:
    cells = (cell for (_, name), cell in results.cells.items() if name == system)
    return sum((cell.verdict() for cell in cells), Verdict())


def rounded(value: float) -> float:
    """Return the value with four significant digits."""
    return float(f"{value:.4g}")


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: rounded(value) for name, value in values.items()}


def shown(value: float) -> str:
    """Return a figure for people: three significant digits, thousands apart."""
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def lines(found: Mapping[str, Any]) -> Iterable[tuple[Row | Cost, dict[str, str]]]:
    """Yield the rows measured with a text for each system: min / median / max, or why there is none."""
    shown_rows: Sequence[Row | Cost] = (*ROWS, *COSTS)
    for row in shown_rows:
        cells = found["rows"].get(row.name, {})
        if cells:
            yield row, {name: _text(row, cell) for name, cell in cells.items()}


def _text(row: Row | Cost, cell: Mapping[str, Any]) -> str:
    spread = cell["figures"].get(row.figure)
    if spread is None:
        return f"failed: {cell['failed']}"
    notes = [
        *(["does not keep up"] if "sent_late_ms" in cell["figures"] else []),
        *(["fewer messages, scaled up"] if scaled_up(cell) else []),
        *([shares] if (shares := _shares(row, cell)) else []),
        *([f"{cell['turns']} turns; failed: {cell['failed']}"] if cell["failed"] else []),
    ]
    note = f" ({'; '.join(notes)})" if notes else ""
    if cell["turns"] == 1:
        return f"{shown(spread['median'])} {row.unit}{note}"
    return f"{shown(spread['min'])} / {shown(spread['median'])} / {shown(spread['max'])} {row.unit}{note}"


def _shares(row: Row | Cost, cell: Mapping[str, Any]) -> str:
    """Return the parts of a row of CPU time that are a hundredth or more; of another row nothing."""
    found = cell.get("figures", {}) if isinstance(row, Cost) else {}
    medians = {role: found[f"cpu_{role}_s"]["median"] for role in ROLES if f"cpu_{role}_s" in found}
    least = sum(medians.values()) / 100
    return ", ".join(f"{role} {shown(value)}" for role, value in medians.items() if value >= least)


def scaled_up(cell: Mapping[str, Any]) -> bool:
    """Say whether a system was given fewer messages than the row is about."""
    scaled = cell.get("figures", {}).get("scaled")
    return scaled is not None and scaled["max"] > 1


def markdown(found: Mapping[str, Any], only: Collection[str] = (), without: Collection[str] = ()) -> str:
    """Return a table: a line for each row, or for those named, a column for each system, medians.

    `without`: systems that get no column. CPU time has its parts where all rows are shown.
    """
    names = [name for name in found["systems"] if name not in without]
    table = [["work", *names], ["---"] * (len(names) + 1)]
    for title, key in (("version", "version"), ("missing against fsync on a majority of three", "mark")):
        table.append([title, *(found["systems"][name][key] for name in names)])
    for row, _ in lines(found):
        if only and row.name not in only:
            continue
        cells = found["rows"][row.name]
        texts = [_median(cells.get(name, {}), row.figure, row.unit) for name in names]
        if not only:
            shares = [_shares(row, cells.get(name, {})) for name in names]
            texts = [f"{text} ({of})" if of else text for text, of in zip(texts, shares, strict=True)]
        table.append([row.title, *texts])
        if row.name == "pending":
            table += [
                [title, *(_median(cells.get(name, {}), figure, unit) for name in names)]
                for title, figure, unit in (
                    ("disk per message pending", "disk_bytes", "B"),
                    ("restart with them pending", "restart_s", "s"),
                )
            ]
    table.append(["lost, early, repeated, changed", *(_judged(found["systems"][name]) for name in names)])
    rows = [f"| {' | '.join(line)} |" for line in table]
    skipped = {} if only else found["skipped"]
    left_out = [f"Left out: {name}, for {reason}" for name, reason in skipped.items()]
    return "\n".join([*rows, "", caption(found["machine"]), *left_out])


def _median(cell: Mapping[str, Any], figure: str, unit: str) -> str:
    spread = cell.get("figures", {}).get(figure)
    return f"{'≈ ' if scaled_up(cell) else ''}{shown(spread['median'])} {unit}" if spread else ""


def _judged(system: Mapping[str, Any]) -> str:
    return ", ".join(str(system[name]) for name in ("lost", "early", "duplicates", "changed"))
