// The visitor's choice of dark or light, before anything is drawn.
"use strict";
try {
  const theme = localStorage.getItem("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch (_) { /* no storage: as the system has it */ }
