"use strict";
// An episode of the bash agent: a row per turn, on one time scale. Texts are the model's, so they are
// shown as text only.

const seconds = (value) => value == null ? "–" : `${value.toLocaleString("en", { maximumSignificantDigits: 3 })} s`;

// The turns of an episode; null for other samples, and for episodes with too many turns for the page.
function episodeOf(sample) {
  try {
    const extra = JSON.parse(sample.extra || "null");
    return extra && Array.isArray(extra.replies) && extra.replies.length ? extra : null;
  } catch {
    return null;
  }
}

// Phases in order: [kind, seconds, number of the turn or null].
function phases(episode, verifier_s) {
  const of = (kind, value, turn) => value > 0 ? [[kind, value, turn]] : [];
  return [...episode.replies.flatMap((turn, n) => [...of("reply", turn.reply_s, n), ...of("command", turn.command_s, n)]),
    ...of("verifier", verifier_s, null)];
}

// The phases of a row as bars.
function bars(all, row, total) {
  const track = element("div", { class: "track" });
  let start = 0;
  for (const [kind, value, turn] of all) {
    if (turn === row) {
      const bar = element("span", { class: `bar-${kind}`, title: `${kind}: ${seconds(value)}` });
      bar.style.left = `${(100 * start) / total}%`;
      bar.style.width = `${(100 * value) / total}%`;
      track.append(bar);
    }
    start += value;
  }
  return track;
}

function turnRow(turn, n, all, total) {
  const ran = turn.command != null;
  const what = ran ? [element("code", {}, turn.command.trimEnd())] : [element("span", { class: "empty" }, "no command")];
  if (turn.observation) what.push(element("details", {}, element("summary", {}, "output"), element("pre", {}, turn.observation)));
  const exit = ran ? element("span", { class: turn.exit_code ? "failed" : "" }, String(turn.exit_code)) : "–";
  return element("tr", {}, element("td", {}, String(n + 1)), element("td", { class: "when" }, bars(all, n, total)),
    element("td", {}, seconds(turn.reply_s)), element("td", {}, String(turn.end - turn.start)),
    element("td", { class: "text" }, ...what), element("td", {}, exit), element("td", {}, ran ? seconds(turn.command_s) : "–"));
}

// Heading, table and totals; nothing for a sample that is not an episode.
function timelineView(sample) {
  const episode = episodeOf(sample);
  if (!episode) return [];
  const verifier_s = sample.cached ? null : sample.judge_s;
  const all = phases(episode, verifier_s);
  const sum = (kind) => all.reduce((so_far, [of, value]) => so_far + (of === kind ? value : 0), 0);
  const total = all.reduce((so_far, [, value]) => so_far + value, 0) || 1;
  const key = (kind) => element("span", { class: `swatch bar-${kind}` });
  const timed = episode.replies.every((turn) => turn.reply_s != null);
  const head = ["turn", "when", "reply", "tokens", "command", "exit", "took"].map((title) =>
    element("th", { class: title === "command" || title === "when" ? "text" : "" }, title));
  const rows = episode.replies.map((turn, n) => turnRow(turn, n, all, total));
  const last = element("tr", {}, element("td", {}, ""), element("td", { class: "when" }, bars(all, null, total)),
    element("td", {}, ""), element("td", {}, ""),
    element("td", { class: "text" }, `ended: ${episode.ending ?? "unknown"}; verifier`), element("td", {}, ""),
    element("td", {}, seconds(verifier_s)));
  return [
    element("h4", {}, "Timeline"),
    element("div", { class: "scroll timeline", tabindex: "0" }, element("table", {}, element("tr", {}, ...head), ...rows, last)),
    element("p", { class: "note" },
      key("reply"), timed ? `replies ${seconds(sum("reply"))}, ` : "the time of replies was not recorded, ",
      key("command"), `commands ${seconds(sum("command"))}, `, key("verifier"), `verifier ${seconds(verifier_s)}`),
  ];
}
