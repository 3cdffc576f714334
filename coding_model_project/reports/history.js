"use strict";
// One problem over training: accepted counts and samples at each step.

SampleBrowser.prototype.followTyped = function () {
  const wanted = this.field("problem").value.trim().toLowerCase();
  const names = this.table.problems.map((name) => name.toLowerCase());
  const exact = names.indexOf(wanted);
  const matching = names.map((name, n) => [name, n]).filter(([name]) => wanted && name.includes(wanted));
  if (exact >= 0) this.follow(exact);
  else if (matching.length === 1) this.follow(matching[0][1]);
  else if (this.selected >= 0 && !wanted) this.follow(this.columns.problem[this.selected]);
  else {
    this.field("problem").focus();
    document.getElementById("count").textContent =
      `${matching.length ? matching.length : "No"} problems match; enter one to follow it.`;
  }
};

SampleBrowser.prototype.follow = function (problem) {
  this.following = problem;
  this.historyPage = 0;
  const panel = document.getElementById("history");
  panel.hidden = problem < 0;
  this.field("problem").value = problem < 0 ? "" : this.table.problems[problem];
  this.filter();
  if (problem < 0) return;
  this.history = this.historyOf(problem);
  this.showHistory();
  panel.scrollIntoView({ block: "nearest" });
};

// Rows {run, split, step, n, accepted, samples}: counts are over all samples, `samples` lists those on the page.
SampleBrowser.prototype.historyOf = function (problem) {
  const rows = new Map();
  for (const [run, split, step, number, n, accepted] of this.table.history)
    if (number === problem) rows.set(`${run}/${split}/${step}`, { run, split, step, n, accepted, samples: [] });
  for (let i = 0; i < this.n; i++) {
    if (this.columns.problem[i] !== problem) continue;
    rows.get(`${this.columns.run[i]}/${this.columns.split_label[i]}/${this.columns.step[i]}`)?.samples.push(i);
  }
  return [...rows.values()].sort((a, b) => a.step - b.step || a.run - b.run || a.split - b.split);
};

SampleBrowser.prototype.showHistory = function () {
  const rows = this.history;
  const total = rows.reduce((sum, row) => sum + row.n, 0);
  const here = rows.reduce((sum, row) => sum + row.samples.length, 0);
  document.getElementById("history-title").textContent = `${this.table.problems[this.following]} over training`;
  document.getElementById("history-note").textContent =
    `${here === total ? "All" : `${here} of`} ${total.toLocaleString("en")} samples are on this page; ` +
    "shares count every sample.";
  this.drawHistory();
  const head = [["step", ""], ...(this.runs.length > 1 ? [["run", "text"]] : []),
                ["accepted", ""], ["samples", "text"], ["share", "text share"], ["split", "text"]];
  const start = this.historyPage * HISTORY_PAGE;
  document.getElementById("history-table").replaceChildren(
    element("tr", {}, ...head.map(([text, looks]) => element("th", { class: looks }, text))),
    ...rows.slice(start, start + HISTORY_PAGE).map((row) => this.historyRow(row)));
  pager(document.getElementById("history-pager"), this.historyPage, HISTORY_PAGE, rows.length, (page) => {
    this.historyPage = page;
    this.showHistory();
  });
};

SampleBrowser.prototype.historyRow = function (row) {
  const bar = element("span");
  bar.style.width = `${(100 * row.accepted) / row.n}%`;
  const chips = row.samples.map((i) => {
    const verdict = this.verdict(i);
    const chip = element("button", { type: "button", class: "chip", title: verdict.replaceAll("_", " ") },
      verdict === "accepted" ? "✓" : verdict[0].toUpperCase());
    chip.setAttribute("aria-label", `sample ${this.columns.sample[i]}: ${verdict.replaceAll("_", " ")}`);
    chip.style.borderColor = verdictColour(verdict);
    chip.addEventListener("click", () => this.open(i));
    return chip;
  });
  return element("tr", {},
    element("td", {}, String(row.step)),
    ...(this.runs.length > 1 ? [element("td", { class: "text" }, this.runs[row.run])] : []),
    element("td", {}, `${row.accepted} of ${row.n}`),
    element("td", { class: "chips" }, ...chips),
    element("td", { class: "text share" }, element("span", { class: "meter" }, bar)),
    element("td", { class: "text" }, this.table.labels[row.split]));
};

// Each trace of the chart has its run and split; omits those without samples of the problem.
SampleBrowser.prototype.drawHistory = function () {
  const { data, ...chart } = this.historyFigure;
  const traces = data.map((trace) => {
    const rows = this.history.filter(({ run, split }) =>
      run === trace.meta.run && this.table.labels[split] === trace.meta.split);
    return { ...trace, x: rows.map((row) => row.step), y: rows.map((row) => row.accepted / row.n) };
  });
  const known = traces.filter(({ x }) => x.length);
  document.getElementById("history-legend").replaceChildren(legend(known));
  draw(document.getElementById("history-chart"), { ...chart, data: known });
};
