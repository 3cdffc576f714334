"use strict";
// The charts. Runs are told apart by colour, a run's lines by dash; what is stacked has a panel per run.

const LINE_CHARTS = [
  { id: "accepted", title: "Accepted, training", percent: true, band: "95% interval",
    note: "Mean over problems of the share of accepted samples; 95% bootstrap interval, problems resampled." },
  { id: "validation", title: "Accepted, validation", percent: true, band: "95% interval",
    note: "As for training, on problems that are not trained on." },
  { id: "evaluations", title: "Checkpoints, evaluated", percent: true, band: "95% interval",
    note: "pass@1 of checkpoints as `watch` had them evaluated; 95% bootstrap interval, problems resampled." },
  { id: "reward", title: "Mean reward", band: "95% interval",
    note: "Mean over problems of the mean reward; 95% bootstrap interval, problems resampled." },
  { id: "loss", title: "Loss", note: "Supervised training: loss per batch, and on the validation set." },
  { id: "parts", title: "Reward parts", note: "Mean of each part over the samples of a step." },
  { id: "length", title: "Response length", unit: "tokens", band: "p5–p95",
    note: "Mean over a step's samples; the band holds 90% of them (5th to 95th percentile)." },
  { id: "public", title: "Public tests passed, hidden failed", percent: true,
    note: "Share of judged samples; a rise can mean that the public tests are being gamed." },
  { id: "infra", title: "Could not be judged", percent: true,
    note: "Share of samples lost to the infrastructure. They are not scored." },
];
const STACK_CHARTS = [
  { id: "errors", title: "Verdicts", percent: true,
    note: "Share of each verdict among the judged training samples of a step.",
    colour: (part) => `--${part}` },
  { id: "times", title: "Where the time went", unit: "seconds",
    note: "Wall time per step. Waiting for the judge is what generation did not hide; validation follows the step.",
    colour: (_, n) => `--part-${n}` },
];
const DASHES = [["solid", ""], ["dash", "6 4"], ["dot", "2 3"], ["dashdot", "6 3 2 3"]];  // plotly's, SVG's
const N_BARS = 400;  // beyond it bars are thinner than a pixel, and slow
const N_TABLE = 500;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const faded = (hex) => hex + "2e";
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");  // plotly reads some HTML
const shown = (value, chart) =>
  value == null ? "–" : chart.percent ? `${(100 * value).toFixed(1)}%` : Number(value.toPrecision(4)).toLocaleString("en");

const drawn = [];  // functions that draw again in the present colours

function layout(chart) {
  const narrow = innerWidth < 600;
  const axis = { gridcolor: css("--grid"), linecolor: css("--rule"), zerolinecolor: css("--rule"), automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, DejaVu Sans, sans-serif", size: 12, color: css("--soft") },
    margin: { l: 48, r: 10, t: 10, b: 36 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: css("--raised"), bordercolor: css("--rule"), font: { color: css("--ink") } },
    dragmode: matchMedia("(pointer: coarse)").matches || narrow ? false : "zoom",
    xaxis: { ...axis, title: { text: "step", standoff: 4 }, tickformat: ",d", hoverformat: ",d",
             unifiedhovertitle: { text: "step %{x}" } },
    yaxis: { ...axis, rangemode: chart.id === "loss" || chart.id === "parts" ? "normal" : "tozero",
             tickformat: chart.percent ? "~%" : "", hoverformat: chart.percent ? ".1%" : ".4~g",
             title: chart.unit ? { text: chart.unit, standoff: 6 } : undefined },
    barmode: "stack", bargap: 0, showlegend: false,
  };
}

const CONFIG = { responsive: true, displaylogo: false, displayModeBar: false };  // the bar would cover lines

// Lines of all runs in one chart: [{run, line, name}].
function chartLines(runs, id) {
  return runs.flatMap((run, n) => (run.lines[id] || []).map((line, of) => ({
    run: n, of, line,
    name: [runs.length > 1 ? run.name : "", line.label].filter(Boolean).join(" · ") || run.name,
  })));
}

function bandTrace(line, colour) {
  const known = line.steps.map((_, n) => n).filter((n) => line.low[n] != null && line.high[n] != null);
  const back = [...known].reverse();
  return { type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip",
           line: { width: 0 }, fillcolor: faded(colour),
           x: [...known, ...back].map((n) => line.steps[n]),
           y: [...known.map((n) => line.high[n]), ...back.map((n) => line.low[n])] };
}

// Which colour and dash each line has: one run's lines differ in colour, several runs' in dash.
function lineLook({ run, of }, nRuns) {
  return nRuns > 1 ? { colour: `--run-${run % 8}`, dash: of % 4 } : { colour: `--run-${of % 8}`, dash: 0 };
}

function lineTraces(chart, entries, nRuns) {
  const traces = [];
  for (const entry of entries) {
    const { line, name } = entry;
    const { colour, dash } = lineLook(entry, nRuns);
    if (line.low) traces.push(bandTrace(line, css(colour)));
    traces.push({ type: "scatter", mode: line.steps.length > 60 ? "lines" : "lines+markers", name: plain(name),
                  x: line.steps, y: line.values, marker: { size: 4 },
                  text: line.steps.map((_, n) => bounds(line, n, chart)), hovertemplate: "%{y}%{text}",
                  line: { color: css(colour), width: 2, dash: DASHES[dash][0] } });
  }
  return traces;
}

function bounds(line, n, chart) {
  return line.low && line.low[n] != null
    ? ` (${chart.band} ${shown(line.low[n], chart)} to ${shown(line.high[n], chart)})` : "";
}

function stackTraces(chart, stack) {
  const bars = stack.steps.length <= N_BARS;
  return Object.entries(stack.parts).map(([part, values], n) => {
    const colour = css(chart.colour(part, n));
    const common = { name: part.replaceAll("_", " "), x: stack.steps, y: values };
    return bars ? { ...common, type: "bar", marker: { color: colour, line: { width: 0 } } }
      : { ...common, type: "scatter", mode: "lines", stackgroup: "all", line: { width: 0 }, fillcolor: colour };
  });
}

// What the colours mean, as text that wraps: [{name, colour (a CSS variable), dash or undefined}].
function legend(keys) {
  const marks = keys.map(({ name, colour, dash }) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const drawn = { x1: 0, x2: 22, y1: 5, y2: 5, "stroke-width": dash == null ? 10 : 2.5,
                    "stroke-dasharray": dash == null ? "" : DASHES[dash][1] };
    for (const [attribute, value] of Object.entries(drawn)) line.setAttribute(attribute, value);
    line.style.stroke = `var(${colour})`;
    for (const [attribute, value] of [["width", dash == null ? 10 : 22], ["height", 10], ["aria-hidden", "true"]])
      svg.setAttribute(attribute, value);
    svg.append(line);
    return element("li", {}, svg, name.replaceAll("_", " "));
  });
  return element("ul", { class: "legend" }, ...marks);
}

// A table of a chart's values, made when it is opened: for those who cannot see or point at the chart.
function valueTable(chart, columns) {
  const steps = [...new Set(columns.flatMap(({ steps }) => steps))].sort((a, b) => a - b).slice(-N_TABLE);
  const details = element("details", {}, element("summary", {}, "Values"));
  details.addEventListener("toggle", () => {
    if (details.children.length > 1) return;
    const at = columns.map(({ steps, values }) => new Map(steps.map((step, n) => [step, values[n]])));
    const head = element("tr", {}, element("th", {}, "step"), ...columns.map(({ name }) => element("th", {}, name)));
    const rows = steps.map((step) => element("tr", {}, element("td", {}, String(step)),
      ...at.map((values) => element("td", {}, shown(values.get(step), chart)))));
    details.append(element("div", { class: "scroll", tabIndex: 0 }, element("table", {}, head, ...rows)));
  });
  return details;
}

function figure(place, { chart, title, traces, keys, caption, columns }) {
  const plot = element("div", { class: "chart", role: "img", "aria-label": `${title}. ${caption}` });
  place.append(element("figure", { "data-chart": chart.id },
    element("h3", {}, title), element("p", { class: "note" }, chart.note),
    legend(keys.length > 1 ? keys : []), plot,
    element("figcaption", {}, caption), valueTable(chart, columns)));
  const draw = () => Plotly.react(plot, traces(), layout(chart), CONFIG);
  drawn.push(draw);
  draw();
}

function lastOf({ name, line }, chart) {
  const n = line.steps.length - 1;
  return `${name} ${shown(line.values[n], chart)}${bounds(line, n, chart)} at step ${line.steps[n]}`;
}

function lineFigure(place, chart, entries, nRuns) {
  figure(place, {
    chart, title: chart.title, traces: () => lineTraces(chart, entries, nRuns),
    keys: entries.map((entry) => ({ name: entry.name, ...lineLook(entry, nRuns) })),
    caption: `Last: ${entries.map((entry) => lastOf(entry, chart)).join("; ")}.`,
    columns: entries.map(({ name, line }) => ({ name, steps: line.steps, values: line.values })),
  });
}

function stackFigure(place, chart, run, nRuns) {
  const stack = run.stacks[chart.id];
  const parts = Object.entries(stack.parts).map(([name, values]) => [name.replaceAll("_", " "), values]);
  figure(place, {
    chart, title: nRuns > 1 ? `${chart.title}: ${run.name}` : chart.title, traces: () => stackTraces(chart, stack),
    keys: Object.keys(stack.parts).map((name, n) => ({ name, colour: chart.colour(name, n) })),
    caption: `Step ${stack.steps.at(-1)}: ` +
      `${parts.map(([name, values]) => `${name} ${shown(values.at(-1), chart)}`).join(", ")}.`,
    columns: parts.map(([name, values]) => ({ name, steps: stack.steps, values })),
  });
}

function drawCharts(runs) {
  const place = document.getElementById("figures");
  const grid = () => {
    const made = element("div", { class: "figures" });
    place.append(made);
    return made;
  };
  const missing = [];
  let current = grid();
  for (const chart of LINE_CHARTS) {
    const entries = chartLines(runs, chart.id);
    if (entries.length) lineFigure(current, chart, entries, runs.length);
    else missing.push(chart.title);
  }
  for (const chart of STACK_CHARTS) {
    const having = runs.filter((run) => run.stacks[chart.id]);
    if (!having.length) missing.push(chart.title);
    if (runs.length > 1) current = grid();  // runs to be compared side by side
    for (const run of having) stackFigure(current, chart, run, runs.length);
  }
  document.getElementById("missing-charts").textContent =
    missing.length ? `Nothing was recorded for: ${missing.join("; ")}.` : "";
  for (const swatch of document.querySelectorAll(".swatch"))
    swatch.style.background = `var(--run-${swatch.dataset.run % 8})`;
}

// Colours come from the style sheet, so a change of scheme is a new drawing.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((draw) => draw()));
