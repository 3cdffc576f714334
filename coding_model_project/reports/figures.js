"use strict";
// The charts: figures that charts.py made, in the colours of page.css, and their values as tables.

const CONFIG = { responsive: true, displaylogo: false, displayModeBar: false };  // the bar would cover lines
const N_TABLE = 500;
const drawn = new Map();  // figures by their places, to be drawn again in another scheme's colours

// An element with properties, and children that are nodes or strings. Nothing here parses HTML.
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A copy with every colour var(--name) looked up, because plotly knows no variables.
function coloured(value, key = "") {
  if (Array.isArray(value)) return value.map((item) => coloured(item));
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, coloured(item, name)]));
  const variable = key.endsWith("color") && /^var\((--[\w-]+)\)$/.exec(value);
  return variable ? getComputedStyle(document.documentElement).getPropertyValue(variable[1]).trim() : value;
}

function draw(place, figure) {
  drawn.set(place, figure);
  const { data, layout } = coloured(figure);
  if (innerWidth < 600 || matchMedia("(pointer: coarse)").matches) layout.dragmode = false;  // a finger scrolls
  Plotly.react(place, data, layout, CONFIG);
}

// A chart's values, made when the table is opened: for those who cannot see or point at the chart.
function fillTable(details, { data, layout }) {
  const lines = data.filter(({ meta }) => meta !== undefined);
  const percent = layout.yaxis.hoverformat.endsWith("%");
  const shown = (value) => value == null ? "–"
    : percent ? `${(100 * value).toFixed(1)}%` : value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const steps = [...new Set(lines.flatMap(({ x }) => x))].sort((a, b) => a - b).slice(-N_TABLE);
  const at = lines.map(({ x, y }) => new Map(x.map((step, n) => [step, y[n]])));
  const head = ["step", ...lines.map(({ meta }) => meta)].map((name) => element("th", {}, name));
  const rows = steps.map((step) => [String(step), ...at.map((values) => shown(values.get(step)))]);
  details.append(element("div", { class: "scroll", tabIndex: 0 }, element("table", {}, element("tr", {}, ...head),
    ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))))));
}

function drawFigures(figures) {
  for (const figure of document.querySelectorAll("[data-figure]")) {
    const made = figures[figure.dataset.figure];
    draw(figure.querySelector(".chart"), made);
    const details = figure.querySelector("details");
    details?.addEventListener("toggle", () => fillTable(details, made), { once: true });
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((made, place) => draw(place, made)));
