"use strict";
// A sample in full (code, verdict, prompt), and helpers for lists of samples.

const GROUPS = { compile_error: "syntax_error", memory_limit: "runtime_error", output_limit: "runtime_error" };
const verdictColour = (verdict) => `var(--${GROUPS[verdict] || verdict}, var(--soft))`;

function verdictMark(verdict) {
  const mark = element("span", { class: "verdict" }, verdict.replaceAll("_", " "));
  mark.style.setProperty("--colour", verdictColour(verdict));
  return mark;
}

// Renders the fields of sample_selection.py; `actions` are buttons.
function sampleView(sample, ...actions) {
  const verdict = element("div", { class: "verdict-side" },
    element("h4", {}, "Verdict"), verdictMark(sample.error), factList(verdictFacts(sample)));
  if (sample.error !== "accepted") verdict.append(...failure(sample));
  const timeline = timelineView(sample);
  const extra = sample.extra ? [element("h4", {}, "Extra"), element("pre", {}, sample.extra)] : [];
  if (!timeline.length) verdict.append(...extra);
  return [
    element("div", { class: "bar" }, element("h3", {}, sample.problem + (sample.step == null ? "" : `, step ${sample.step}`)), ...actions),
    factList(sampleFacts(sample)),
    element("div", { class: "pair" },
      element("div", {}, element("h4", {}, "Completion"), completionView(sample.completion, sample.extraction)),
      verdict),
    ...timeline,
    element("h4", {}, "Prompt"),
    sample.prompt ? element("pre", { class: "prompt" }, sample.prompt)
      : element("p", { class: "empty" }, "Recorded when the evaluation ends."),
    ...(timeline.length ? extra : []),
  ];
}

function failure(sample) {
  const title = sample.failed_test == null ? "Why"
    : `Failing test: hidden test ${sample.failed_test} (counted from 0)`;
  const pre = element("pre", { class: "failing" }, sample.detail || "No detail was recorded.");
  pre.style.setProperty("--colour", verdictColour(sample.error));
  return [element("h4", {}, title), pre];
}

function factList(pairs) {
  return element("dl", {}, ...pairs.filter(([, value]) => value !== "" && value != null).map(([label, value]) =>
    element("div", {}, element("dt", {}, label), element("dd", {}, String(value)))));
}

function sampleFacts(sample) {
  const parts = Object.entries(JSON.parse(sample.parts || "{}"));
  return [
    ["run", sample.run], ["split", sample.split], ["sample", sample.sample],
    ["tokens", sample.tokens.toLocaleString("en")], ["reward", sample.reward],
    ["parts", parts.length > 1 ? parts.map(([name, value]) => `${name} ${value}`).join(", ") : ""],
  ];
}

function verdictFacts(sample) {
  return [
    ["hidden tests passed", sample.n_tests == null ? "" : `${sample.passed} of ${sample.n_tests}`],
    ["public tests", { true: "passed", false: "failed" }[sample.public_passed] || "not run"],
    ["judged in", sample.cached ? "cached" : sample.judge_s == null ? "" : `${sample.judge_s} s`],
    ["code found by", sample.extraction.replaceAll("_", " ")], ["sandbox", sample.sandbox],
  ];
}

// "51–100 of 12,345", with buttons for the previous and next page.
function pager(place, page, size, n, go) {
  const move = (text, to, allowed) => {
    const button = element("button", { type: "button", disabled: !allowed }, text);
    button.addEventListener("click", () => go(to));
    return button;
  };
  const last = Math.min(n, (page + 1) * size);
  const range = `${(page * size + 1).toLocaleString("en")}–${last.toLocaleString("en")} of ${n.toLocaleString("en")}`;
  place.replaceChildren(...(n > size
    ? [move("Previous", page - 1, page > 0), element("span", {}, range), move("Next", page + 1, last < n)] : []));
}
