"use strict";
// The charts of charts.py as SVG, in the colours of page.css, and their values as tables.

const N_TABLE = 500;
const N_MARKERS = 60;
const N_TICKS = 5;
const MARGIN = { left: 52, right: 12, top: 20, bottom: 24 };
const charts = new Map();  // by their figures, to redraw at another width

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

function vector(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// ── scales ────────────────────────────────────────────────────────────────────────────────────────

// Round numbers in a range; `least` is the minimum distance between them.
function ticks(low, high, least = 0) {
  const rough = Math.max((high - low) / N_TICKS, least) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((times) => times * power >= rough * 0.999) * power;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - first + 1) }, (_, n) => (first + n) * step);
}

const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
const isTiny = (value) => value !== 0 && Math.abs(value) < 1e-3;  // its zeros would not fit beside an axis
const number = (value) => isTiny(value) ? Number(value.toPrecision(4)).toExponential()
  : value.toLocaleString("en", { maximumSignificantDigits: 4 });
const isNumber = (value) => typeof value === "number";

// A value as formatted in tables and labels.
function shown(value, { percent, shape }) {
  if (!isNumber(value)) return "–";
  if (shape === "differences") return `${value < 0 ? "" : "+"}${(100 * value).toFixed(1)}%`;
  return percent ? `${(100 * value).toFixed(1)}%` : number(value);
}

// ── drawing ───────────────────────────────────────────────────────────────────────────────────────

// Draws a chart. A click dispatches the event "step" with the step as its detail.
function draw(place, chart) {
  if (!charts.has(place)) new ResizeObserver(() => charts.get(place)?.width !== place.clientWidth && paint(place)).observe(place);
  charts.set(place, { chart, width: 0 });
  paint(place);
}

function paint(place) {
  const kept = charts.get(place);
  kept.width = place.clientWidth;
  const { chart, width } = kept;
  const box = { left: MARGIN.left, right: Math.max(width - MARGIN.right, MARGIN.left + 1), top: MARGIN.top, bottom: chart.height - MARGIN.bottom };
  const svg = vector("svg", { width, height: chart.height });
  const stops = { lines: drawLines, stack: drawStack, bars: drawBars, differences: drawDifferences }[chart.shape](svg, chart, box);
  const guide = vector("line", { class: "guide", visibility: "hidden" });
  const label = element("div", { class: "hover", hidden: true });
  svg.append(guide);
  place.replaceChildren(svg, label);
  const nearest = (event) => {
    const at = svg.getBoundingClientRect();
    const distance = ({ x, y }) => x == null ? Math.abs(event.clientY - at.top - y) : Math.abs(event.clientX - at.left - x);
    return stops.reduce((best, stop) => !best || distance(stop) < distance(best) ? stop : best, null);
  };
  svg.addEventListener("pointermove", (event) => {
    const stop = nearest(event);
    if (!stop) return;
    label.replaceChildren(element("b", {}, stop.title), ...stop.values.map(([colour, text]) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = colour;
      return element("div", {}, swatch, text);
    }));
    label.hidden = false;
    const isRight = (stop.x ?? 0) > width / 2;
    label.style.left = isRight ? "" : `${(stop.x ?? box.left) + 10}px`;
    label.style.top = stop.x == null ? `${stop.y + 12}px` : "";
    label.style.right = isRight ? `${width - stop.x + 10}px` : "";
    if (stop.x != null) for (const [name, value] of Object.entries({ x1: stop.x, x2: stop.x, y1: box.top, y2: box.bottom, visibility: "visible" }))
      guide.setAttribute(name, value);
  });
  svg.addEventListener("pointerleave", () => { label.hidden = true; guide.setAttribute("visibility", "hidden"); });
  svg.addEventListener("click", (event) => {
    const stop = nearest(event);
    if (stop?.step != null) place.dispatchEvent(new CustomEvent("step", { bubbles: true, detail: stop.step }));
  });
}

// Draws the vertical axis with grid, numbers and unit; returns its scale.
function axisY(svg, chart, box, values) {
  const finite = values.filter(isNumber);
  let low = finite.reduce((least, value) => Math.min(least, value), finite[0] ?? 0);
  let high = finite.reduce((most, value) => Math.max(most, value), finite[0] ?? 1);
  if (chart.from_zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  if (low === high) [low, high] = low ? [low - Math.abs(low) / 2, high + Math.abs(high) / 2] : [0, 1];
  const room = (high - low) * 0.05;
  const y = scale(chart.from_zero && low >= 0 ? low : low - room, high + room, box.bottom, box.top);
  for (const tick of ticks(low, high)) svg.append(vector("g", { class: "ytick" },
    vector("line", { x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }),
    vector("text", { x: box.left - 6, y: y(tick) + 4, "text-anchor": "end" }, chart.percent ? `${number(100 * tick)}%` : number(tick))));
  if (chart.unit) svg.append(vector("text", { x: 4, y: 11 }, chart.unit));
  return y;
}

// Draws the numbers of a horizontal axis; returns its scale.
function axisX(svg, box, low, high, least, text) {
  const x = scale(low, high, box.left, box.right);
  for (const tick of ticks(low, high, least)) svg.append(vector("g", { class: "xtick" },
    vector("line", { x1: x(tick), x2: x(tick), y1: box.top, y2: box.bottom }),
    vector("text", { x: x(tick), y: box.bottom + 16, "text-anchor": "middle" }, text(tick))));
  return x;
}

// The steps of a chart and their scale; `half` is the margin at both ends.
function axisOfSteps(svg, { data }, box, half) {
  const steps = [...new Set(data.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const first = steps[0] ?? 0, last = steps.at(-1) ?? 1;
  const free = half || (last - first) / 50 || 0.5;
  svg.append(vector("text", { x: box.left - 6, y: box.bottom + 16, "text-anchor": "end" }, "step"));
  return { steps, x: axisX(svg, box, first - free, last + free, 1, (step) => step.toLocaleString("en")) };
}

// Hover stops: positions with their values.
function stopsOf(steps, x, chart) {
  const at = chart.data.map((trace) => new Map(trace.x.map((step, n) => [step, n])));
  return steps.map((step) => ({ x: x(step), step, title: `step ${step.toLocaleString("en")}`, values: chart.data.flatMap((trace, t) => {
    const n = at[t].get(step);
    return n == null ? [] : [[trace.colour, `${trace.name}: ${shown(trace.y[n], chart)}${trace.text?.[n] ?? ""}`]];
  }) }));
}

function drawLines(svg, chart, box) {
  const { steps, x } = axisOfSteps(svg, chart, box, 0);
  const y = axisY(svg, chart, box, chart.data.flatMap((trace) => [...trace.y, ...(trace.low ?? []), ...(trace.high ?? [])]));
  for (const trace of chart.data) {
    const group = vector("g", { class: "trace" });
    group.style.color = trace.colour;
    const known = trace.low ? trace.x.map((_, n) => n).filter((n) => isNumber(trace.low[n])) : [];
    const corners = [...known.map((n) => [n, trace.high[n]]), ...known.toReversed().map((n) => [n, trace.low[n]])];
    if (corners.length) group.append(vector("polygon", { class: "band", points: corners.map(([n, value]) => `${x(trace.x[n])},${y(value)}`).join(" ") }));
    let pen = "M";  // lifted over a gap
    const path = trace.x.map((step, n) => {
      if (!isNumber(trace.y[n])) { pen = "M"; return ""; }
      const part = `${pen}${x(step)} ${y(trace.y[n])}`;
      pen = "L";
      return part;
    }).join("");
    group.append(vector("path", { d: path, "stroke-dasharray": trace.dash === "solid" ? "none" : trace.dash }));
    if (trace.x.length <= N_MARKERS) group.append(...trace.x.flatMap((step, n) =>
      isNumber(trace.y[n]) ? [vector("circle", { cx: x(step), cy: y(trace.y[n]), r: 2.5 })] : []));
    svg.append(group);
  }
  return stopsOf(steps, x, chart);
}

function drawStack(svg, chart, box) {
  const { steps, x } = axisOfSteps(svg, chart, box, 0.5);
  const sums = steps.map((_, n) => chart.data.reduce((sum, { y }) => sum + (y[n] || 0), 0));
  const y = axisY(svg, chart, box, sums);
  const below = steps.map(() => 0);
  for (const trace of chart.data) {
    // One path for all bars of a part, which is fast with thousands of steps.
    const path = trace.x.map((step, n) => {
      const from = below[n];
      below[n] += trace.y[n] || 0;
      return `M${x(step - 0.5)} ${y(from)}H${x(step + 0.5)}V${y(below[n])}H${x(step - 0.5)}Z`;
    }).join("");
    const group = vector("g", { class: "trace" }, vector("path", { class: "area", d: path }));
    group.style.color = trace.colour;
    svg.append(group);
  }
  return stopsOf(steps, x, chart);
}

const whisker = (x1, x2, y1, y2) => vector("line", { class: "whisker", x1, x2, y1, y2 });

function drawBars(svg, chart, box) {
  const labels = [...new Set(chart.data.flatMap(({ x }) => x))];
  const y = axisY(svg, chart, box, chart.data.flatMap((trace) => [...trace.y, ...trace.high]));
  const group = (box.right - box.left) / labels.length, width = (0.7 * group) / chart.data.length;
  const middle = (label) => box.left + (labels.indexOf(label) + 0.5) * group;
  for (const label of labels)
    svg.append(vector("g", { class: "xtick" }, vector("text", { x: middle(label), y: box.bottom + 16, "text-anchor": "middle" }, label)));
  chart.data.forEach((trace, side) => {
    const bars = vector("g", { class: "trace" });
    bars.style.color = trace.colour;
    trace.x.forEach((label, n) => {
      const left = middle(label) + (side - chart.data.length / 2) * width;
      bars.append(vector("rect", { class: "area point", x: left, width, y: y(trace.y[n]), height: y(0) - y(trace.y[n]) }),
        whisker(left + width / 2, left + width / 2, y(trace.low[n]), y(trace.high[n])));
    });
    svg.append(bars);
  });
  return labels.map((label) => ({ x: middle(label), title: label, values: chart.data.flatMap((trace) => {
    const n = trace.x.indexOf(label);
    return n < 0 ? [] : [[trace.colour, `${trace.name}: ${shown(trace.y[n], chart)}${trace.text[n]}`]];
  }) }));
}

function drawDifferences(svg, chart, box) {
  const [trace] = chart.data;
  const low = Math.min(0, ...trace.low), high = Math.max(0, ...trace.high), room = (high - low) * 0.05 || 0.01;
  const sides = { ...box, left: 16 };
  const x = axisX(svg, sides, low - room, high + room, 0, (tick) => `${tick > 0 ? "+" : ""}${number(100 * tick)}%`);
  svg.append(vector("line", { class: "guide", x1: x(0), x2: x(0), y1: box.top, y2: box.bottom }));
  const row = (box.bottom - box.top) / trace.y.length;
  return trace.y.map((label, n) => {
    const y = box.top + (n + 0.7) * row;
    const marks = vector("g", { class: "trace" }, whisker(x(trace.low[n]), x(trace.high[n]), y, y), vector("circle", { class: "point", cx: x(trace.x[n]), cy: y, r: 5 }));
    marks.style.color = trace.colour;
    svg.append(vector("g", { class: "ytick" }, vector("text", { x: sides.left, y: y - 12 }, label)), marks);
    return { y, title: label, values: [[trace.colour, `${shown(trace.x[n], chart)}${trace.text[n]}`]] };
  });
}

// ── what stands around a chart ────────────────────────────────────────────────────────────────────

// The legend; empty for a single trace.
function legend(keys) {
  return element("ul", { class: "legend" }, ...(keys.length > 1 ? keys : []).map(({ name, colour, dash }) => {
    const width = dash ? 22 : 10;
    const line = vector("line", { x2: width, y1: 5, y2: 5, "stroke-width": dash ? 2.5 : 10, "stroke-dasharray": dash === "solid" ? "none" : dash });
    line.style.stroke = colour;
    return element("li", {}, vector("svg", { width, height: 10, "aria-hidden": true }, line), name);
  }));
}

// Renders a chart and its texts into a figure, replacing an older version.
function fillFigure(figure, chart) {
  if (!figure.querySelector(".chart")) {
    const bySteps = ["lines", "stack"].includes(chart.shape);  // other captions list all values
    const details = element("details", { hidden: !bySteps }, element("summary", {}, "Values"));
    details.addEventListener("toggle", () => { if (details.open) fillTable(details, charts.get(place).chart); });
    const place = element("div", { class: "chart", role: "img" });
    place.style.height = `${chart.height}px`;
    figure.replaceChildren(element("h3", {}, chart.title), element("p", { class: "note" }, chart.note), legend([]),
      place, element("figcaption"), details);
  }
  const [, , keys, place, caption, details] = figure.children;
  keys.replaceWith(legend(chart.data));
  place.setAttribute("aria-label", `${chart.title}. ${chart.caption}`);
  caption.textContent = chart.caption;
  draw(place, chart);
  if (details.open) fillTable(details, chart);
}

// A table of a chart's values, built when opened, for those who cannot see or point at the chart.
function fillTable(details, chart) {
  const lines = chart.data;
  const steps = [...new Set(lines.flatMap(({ x }) => x))].sort((a, b) => a - b).slice(-N_TABLE);
  const at = lines.map(({ x, y }) => new Map(x.map((step, n) => [step, y[n]])));
  const head = ["step", ...lines.map(({ name }) => name)].map((name) => element("th", {}, name));
  const rows = steps.map((step) => [String(step), ...at.map((values) => shown(values.get(step), chart))]);
  const table = element("table", {}, element("tr", {}, ...head),
    ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))));
  details.replaceChildren(details.firstChild, element("div", { class: "scroll", tabIndex: 0 }, table));
}

function drawFigures(figures) {
  for (const figure of document.querySelectorAll("[data-figure]")) fillFigure(figure, figures[figure.dataset.figure]);
}
