"use strict";
// Python syntax highlighting with elements and text; nothing here parses HTML, because a model wrote the code.

const KEYWORDS = new Set(
  ("False None True and as assert async await break class continue def del elif else except finally for from " +
   "global if import in is lambda nonlocal not or pass raise return try while with yield match case").split(" "));
// No alternative backtracks, so that no text can make this slow.
const TOKENS = new RegExp([
  /(?<comment>#[^\n]*)/,
  /(?<string>(?:\b[rbfuRBFU]{1,2})?(?:"""[\s\S]*?(?:"""|$)|\x27{3}[\s\S]*?(?:\x27{3}|$)|"(?:[^"\\\n]|\\[\s\S])*"?|\x27(?:[^\x27\\\n]|\\[\s\S])*\x27?))/,
  /(?<number>\b\d[\w.]*)/,
  /(?<word>[A-Za-z_]\w*)/,
].map((part) => part.source).join("|"), "g");

// Pieces of Python source: [kind or "", text].
function pythonTokens(source) {
  const pieces = [];
  let end = 0, before = "";
  for (const match of source.matchAll(TOKENS)) {
    if (match.index > end) pieces.push(["", source.slice(end, match.index)]);
    const { comment, string, number, word } = match.groups;
    let kind = "";
    if (comment) kind = "comment";
    else if (string) kind = "string";
    else if (number) kind = "number";
    else if (KEYWORDS.has(word)) kind = "keyword";
    else if (before === "def" || before === "class") kind = "name";
    before = word || "";
    pieces.push([kind, match[0]]);
    end = match.index + match[0].length;
  }
  if (end < source.length) pieces.push(["", source.slice(end)]);
  return pieces;
}

// A numbered listing of pieces.
function listing(pieces, className) {
  const code = element("code", { class: className });
  let line = element("span", { class: "line" });
  for (const [kind, text] of pieces) {
    text.split("\n").forEach((part, n) => {
      if (n) {
        code.append(line);
        line = element("span", { class: "line" });
      }
      if (part) line.append(kind ? element("span", { class: `tok-${kind}` }, part) : part);
    });
  }
  code.append(line);
  return element("pre", {}, code);
}

// Parts of a completion as [is code, text]. Text without a fence is code if it was judged as a whole.
function blocks(completion, extraction) {
  const lines = completion.split("\n");
  const found = [];
  let inside = false, kept = [];
  const close = () => {
    if (kept.length) found.push([inside, kept.join("\n")]);
    kept = [];
  };
  for (const line of lines) {
    const opens = /^\s*(```|~~~)/.test(line);
    if (opens) {
      close();
      inside = !inside;
    } else kept.push(line);
  }
  close();
  const fenced = found.some(([isCode]) => isCode);
  return fenced ? found : [[extraction !== "nothing" && extraction !== "unclosed_think", completion]];
}

// Renders a completion with highlighted code and plain prose.
function completionView(completion, extraction) {
  const view = element("div", { class: "completion" });
  if (!completion.trim()) view.append(element("p", { class: "empty" }, "The completion is empty."));
  else for (const [isCode, text] of blocks(completion, extraction)) {
    if (!text.trim()) continue;
    view.append(isCode ? listing(pythonTokens(text.trimEnd()), "code") : element("pre", { class: "prose" }, text));
  }
  return view;
}
