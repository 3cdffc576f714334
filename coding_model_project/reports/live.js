"use strict";
// The live view. The URL fragment holds its state, so that views can be linked and the back button works.

const TOKEN = new URLSearchParams(location.search).get("token");
const POLL_MS = 2000;
const FILTERS = ["run", "split", "step", "problem", "source", "error", "rate_from", "rate_to", "text"];
const NAMES = { steps: "Steps", groups: "Problems", samples: "Samples" };
const SECTIONS = ["", "#runs", "#charts", "#samples"];
let runs = [];  // names, by number
let version = "";

async function ask(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value != null);
  const answer = await fetch(`api/${path}?${new URLSearchParams(given)}`, { headers: { Authorization: `Bearer ${TOKEN}` } });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

// ── what is chosen ────────────────────────────────────────────────────────────────────────────────

const chosen = () => Object.fromEntries(new URLSearchParams(SECTIONS.includes(location.hash) ? "" : location.hash.slice(1)));
const address = (state) => `#${new URLSearchParams(Object.entries(state).filter(([, value]) => value !== "" && value != null))}`;
const level = (state) => state.level || "steps";
const query = (state) => ({ ...Object.fromEntries(FILTERS.map((name) => [name, state[name]])), page: state.page,
  rate_from: state.rate_from && state.rate_from / 100, rate_to: state.rate_to && state.rate_to / 100 });

// A link to the current view with some changes, on its first page.
const link = (changes, text) => element("a", { href: address({ ...chosen(), page: "", ...changes }) }, text);

// ── tables ────────────────────────────────────────────────────────────────────────────────────────

const percent = (part, of) => of ? `${((100 * part) / of).toFixed(0)}%` : "–";
const round = (value) => value == null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 });
const accepted = { title: "accepted", cell: (row) => `${row.passed ?? 0} of ${row.judged}` };
const share = { title: "share", cell: (row) => percent(row.passed, row.judged) };
const reward = { title: "reward", cell: (row) => round(row.reward) };
const found = { title: "found", cell: (row) => row.found };
const step = { title: "step", cell: (row) => row.step };
const problem = { title: "problem", looks: "text", cell: (row) => row.problem };
const COLUMNS = {
  steps: [step, accepted, share, reward, { title: "problems", cell: (row) => row.problems }, found],
  groups: [problem, step, accepted, reward, { title: "in the run", cell: (row) => percent(row.rate, 1) }, found],
  samples: [{ title: "sample", looks: "text", cell: (row) => row.sample }, problem, step,
    { title: "verdict", looks: "text", cell: (row) => verdictMark(row.error || "accepted") }, reward,
    { title: "tokens", cell: (row) => row.tokens }],
};
const key = ({ run, split, step: at, problem: name, sample }) => JSON.stringify([run, split, at, name, sample]);
const INTO = {
  steps: ({ run, split, step: at }) => ({ level: "groups", run, split, step: at }),
  groups: ({ run, split, step: at, problem: name }) => ({ level: "samples", run, split, step: at, problem: name }),
  samples: (row) => ({ open: key(row), page: chosen().page }),
};

function showTable(state, { n, size, rows }) {
  const [first, ...rest] = COLUMNS[level(state)];
  const where = [...(runs.length > 1 ? [{ title: "run", looks: "text", cell: (row) => runs[row.run] }] : []),
    { title: "split", looks: "text", cell: (row) => row.split }];
  const head = [first, ...rest, ...where].map(({ title, looks }) => element("th", { class: looks || "" }, title));
  const lines = rows.map((row) => {
    const into = link(INTO[level(state)](row), String(first.cell(row)));
    if (key(row) === state.open) into.setAttribute("aria-current", "true");
    return element("tr", {}, element("td", { class: first.looks || "" }, into),
      ...[...rest, ...where].map(({ looks, cell }) => element("td", { class: looks || "" }, cell(row))));
  });
  document.getElementById("table").replaceChildren(element("tr", {}, ...head), ...lines);
  document.getElementById("count").textContent = `${n.toLocaleString("en")} ${NAMES[level(state)].toLowerCase()}`;
  pager(document.getElementById("pager"), Number(state.page || 0), size, n, (page) => {
    location.hash = address({ ...chosen(), page });
  });
}

// Breadcrumbs: all steps › a step › a problem.
function showLevels(state) {
  document.getElementById("levels").replaceChildren(...Object.entries(NAMES).map(([name, text]) => {
    const wider = { level: name, ...(name === "steps" ? { step: "", problem: "" } : name === "groups" ? { problem: "" } : {}) };
    const made = link(wider, text);
    if (name === level(state)) made.setAttribute("aria-current", "page");
    return made;
  }));
}

// ── the page ──────────────────────────────────────────────────────────────────────────────────────

const form = document.getElementById("filters");
const detail = document.getElementById("detail");
let opened = "";

async function show() {
  const state = chosen();
  for (const name of FILTERS) form.elements[name].value = state[name] ?? "";
  showLevels(state);
  const answer = await ask(level(state), query(state));
  if (address(state) !== address(chosen())) return;  // another view was selected meanwhile
  showTable(state, answer);
  if (state.open && state.open !== opened) await open(state.open);
}

async function open(wanted) {
  const [run, split, at, name, sample] = JSON.parse(wanted);
  const made = await ask("sample", { run, split, step: at, problem: name, sample });
  opened = wanted;
  const recorded = element("details", {}, element("summary", {}, "As recorded"),
    element("pre", {}, JSON.stringify({ ...made.recorded, prompt: undefined, completion: undefined }, null, 2)));
  detail.replaceChildren(...sampleView({ ...made, run: runs.length > 1 ? made.run : "" }), recorded);
  detail.focus({ preventScroll: true });
}

function showOverview(overview) {
  version = overview.version;
  runs = overview.runs.map(({ name }) => name);
  for (const [n, { state, facts }] of overview.runs.entries()) {
    const card = document.querySelector(`[data-run="${n}"]`);
    const mark = card.querySelector(".state");
    mark.textContent = state;
    mark.className = `state state-${state}`;
    card.querySelector("dl").replaceChildren(...facts.filter(([label, text]) => label !== "command" && text !== state)
      .flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]));
  }
  const figures = document.querySelector("#charts .figures");
  for (const chart of overview.charts) {
    let figure = [...figures.children].find(({ dataset }) => dataset.figure === chart.id);
    if (!figure) {
      figure = element("figure", { "data-figure": chart.id });
      figures.append(figure);
    }
    fillFigure(figure, chart);
  }
  const options = (name, first, values) => form.elements[name].replaceChildren(...[...first, ...values.map((value) => [value, value.replaceAll("_", " ")])]
    .map(([value, text]) => element("option", { value }, text)));
  options("split", [["", "all"]], overview.choices.split);
  options("source", [["", "all"]], overview.choices.source);
  options("error", [["", "all"], ["accepted", "accepted"], ["*", "any error"]], overview.choices.error);
}

async function follow() {
  const overview = await ask("overview", { have: version });
  if (overview.version === version) return;
  showOverview(overview);
  await show();
}

const failed = document.getElementById("failure");
async function attempt(work) {
  try {
    await work();
    failed.hidden = true;
  } catch (error) {
    failed.hidden = false;
    failed.textContent = error instanceof TypeError ? `This page's server does not answer: ${error.message}` : error.message;
  }
}

let typing = 0;
for (const event of ["input", "change"]) form.addEventListener(event, () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const values = Object.fromEntries(FILTERS.map((name) => [name, form.elements[name].value.trim()]));
    location.hash = address({ ...chosen(), page: "", ...values });
  }, 150);
});
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", (event) => { event.preventDefault(); location.hash = address({ level: chosen().level }); });
addEventListener("hashchange", () => SECTIONS.includes(location.hash) || attempt(show));
document.getElementById("charts").addEventListener("step", ({ detail: at }) => {
  location.hash = address({ ...chosen(), level: "groups", step: at, problem: "", page: "" });
  document.getElementById("samples").scrollIntoView();
});

attempt(async () => {
  showOverview(await ask("overview"));
  await show();
  document.documentElement.dataset.ready = "true";
  if (document.getElementById("samples").hasAttribute("data-follow"))
    (async () => { for (;;) { await new Promise((done) => setTimeout(done, POLL_MS)); await attempt(follow); } })();
});
