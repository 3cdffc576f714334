"use strict";
// The samples: a filtered, paginated list, and one sample in full.

const PAGE = 50;
const HISTORY_PAGE = 25;
const N_SUGGESTED = 300;

class SampleBrowser {
  constructor(table, historyFigure) {
    this.table = table;
    this.runs = table.runs;
    this.historyFigure = historyFigure;
    this.columns = table.columns;
    this.n = this.columns.run ? this.columns.run.length : 0;
    this.stepped = (this.columns.step || []).some((step) => step > 0);  // an evaluation has no steps
    this.lower = new Map();  // lower-case texts, cached for searches
    this.found = [];
    this.page = 0;
    this.selected = -1;
    this.following = -1;
    this.historyPage = 0;
    this.fillFilters();
    this.listen();
    this.filter();
  }

  text(i, column) { return this.table.texts[this.columns[`${column}_text`][i]]; }
  label(i, column) { return this.table.labels[this.columns[`${column}_label`][i]]; }
  problem(i) { return this.table.problems[this.columns.problem[i]]; }
  verdict(i) { return this.label(i, "error"); }

  // All columns of a sample by name, with indices resolved.
  sample(i) {
    const found = {};
    for (const [name, values] of Object.entries(this.columns)) {
      const [, plain, points] = /^(.+?)(?:_(text|label))?$/.exec(name);
      found[plain] = points ? this.table[`${points}s`][values[i]] : values[i];
    }
    const step = this.stepped ? found.step : null;
    return { ...found, step, problem: this.problem(i), run: this.runs.length > 1 ? this.runs[found.run] : "" };
  }

  field(name) { return document.getElementById(`f-${name}`); }

  fillFilters() {
    const options = (name, pairs) => this.field(name).replaceChildren(
      ...pairs.map(([value, text]) => element("option", { value }, text)));
    const labels = (column) => [...new Set(this.columns[`${column}_label`] || [])]
      .map((number) => this.table.labels[number]).sort();
    options("run", [["", "all"], ...this.runs.map((name, n) => [String(n), name])]);
    this.field("run").closest("label").hidden = this.runs.length < 2;
    for (const name of ["from", "to", "order"]) this.field(name).closest("label").hidden = !this.stepped;
    document.getElementById("follow").hidden = !this.stepped;
    const verdicts = labels("error").filter((verdict) => verdict !== "accepted");
    options("verdict", [["", "all"], ["accepted", "accepted"], ["*", "any error"],
      ["public", "public passed, hidden failed"], ...verdicts.map((verdict) => [verdict, verdict.replaceAll("_", " ")])]);
    options("split", [["", "all"], ...labels("split").map((split) => [split, split])]);
    const whole = new Set(this.table.whole);
    const names = this.table.problems.map((name, n) => [name, whole.has(n)]).sort((a, b) => b[1] - a[1]);
    document.getElementById("problem-names").replaceChildren(
      ...names.slice(0, N_SUGGESTED).map(([name, isWhole]) => element("option", { value: name }, isWhole ? "every sample" : "")));
  }

  listen() {
    let timer = 0;
    const form = document.getElementById("filters");
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.filter(), 150);
    };
    form.addEventListener("input", soon);
    form.addEventListener("change", soon);
    form.addEventListener("submit", (event) => { event.preventDefault(); this.filter(); });
    form.addEventListener("reset", () => setTimeout(() => this.filter()));
    document.getElementById("follow").addEventListener("click", () => this.followTyped());
    document.getElementById("history-close").addEventListener("click", () => this.follow(-1));
    document.getElementById("list").addEventListener("keydown", (event) => {
      const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      const row = next && event.target.closest("li")[next];
      if (row) { event.preventDefault(); row.firstChild.focus(); }
    });
  }

  // The samples that match the filters, in order.
  filter() {
    const value = (name) => this.field(name).value.trim();
    const c = this.columns;
    const run = value("run"), verdict = value("verdict"), split = value("split"), text = value("text").toLowerCase();
    const from = value("from") === "" ? -Infinity : Number(value("from"));
    const to = value("to") === "" ? Infinity : Number(value("to"));
    const wanted = value("problem").toLowerCase();
    const exact = this.table.problems.findIndex((name) => name.toLowerCase() === wanted);
    const problems = this.table.problems.map((name, n) =>
      !wanted || (exact >= 0 ? n === exact : name.toLowerCase().includes(wanted)));
    const found = [];
    for (let i = 0; i < this.n; i++) {
      if (run && c.run[i] !== Number(run)) continue;
      if (c.step[i] < from || c.step[i] > to) continue;
      if (!problems[c.problem[i]]) continue;
      if (split && this.label(i, "split") !== split) continue;
      if (verdict && !this.hasVerdict(i, verdict)) continue;
      if (text && !this.contains(i, text)) continue;
      found.push(i);
    }
    const sign = value("order") === "down" ? -1 : 1;
    this.found = found.sort((a, b) => sign * (c.step[a] - c.step[b]) || a - b);
    this.page = 0;
    this.showList();
  }

  hasVerdict(i, wanted) {
    const verdict = this.verdict(i);
    if (wanted === "*") return verdict !== "accepted";
    if (wanted === "public") return verdict !== "accepted" && this.columns.public_passed[i] === true;
    return verdict === wanted;
  }

  contains(i, text) {
    return ["completion", "prompt", "detail"].some((column) => {
      const number = this.columns[`${column}_text`][i];
      if (!this.lower.has(number)) this.lower.set(number, this.table.texts[number].toLowerCase());
      return this.lower.get(number).includes(text);
    });
  }

  showList() {
    const start = this.page * PAGE;
    const rows = this.found.slice(start, start + PAGE).map((i) => element("li", {}, this.row(i)));
    document.getElementById("list").replaceChildren(...rows);
    document.getElementById("count").textContent =
      this.found.length === 1 ? "1 sample" : `${this.found.length.toLocaleString("en")} samples`;
    pager(document.getElementById("pager"), this.page, PAGE, this.found.length, (page) => {
      this.page = page;
      this.showList();
      document.getElementById("count").scrollIntoView({ block: "nearest" });
    });
  }

  row(i) {
    const c = this.columns;
    const many = this.runs.length > 1;
    const swatch = element("span", { class: "swatch", title: this.runs[c.run[i]] });
    swatch.style.background = `var(--run-${c.run[i] % 8})`;
    const where = element("span", {}, ...(many ? [swatch] : []), (this.stepped ? `step ${c.step[i]} · ` : "") + this.problem(i));
    const snippet = this.text(i, "completion").slice(0, 120).replace(/\s+/g, " ").trim() || "(empty)";
    const button = element("button", { type: "button", "data-sample": String(i) },
      element("span", { class: "first" }, where, verdictMark(this.verdict(i))),
      element("span", { class: "second" }, snippet));
    button.setAttribute("aria-current", String(i === this.selected));
    button.addEventListener("click", () => this.open(i));
    return button;
  }

  open(i) {
    this.selected = i;
    for (const button of document.querySelectorAll("#list button"))
      button.setAttribute("aria-current", String(Number(button.dataset.sample) === i));
    const detail = document.getElementById("detail");
    const follow = element("button", { type: "button", class: "follow-sample" }, "Follow this problem over training");
    follow.addEventListener("click", () => this.follow(this.columns.problem[i]));
    detail.replaceChildren(...sampleView(this.sample(i), follow));
    detail.focus({ preventScroll: true });
    // Next to the list it may be out of view; below the list it always is.
    detail.scrollIntoView({ block: innerWidth <= 800 ? "start" : "nearest" });
  }
}
