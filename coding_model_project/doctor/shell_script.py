"""The words of a shell script's commands, without running anything.

Variables and arrays that the script assigns itself are expanded, others stay as `$NAME`. The output of a
command is `$unknown`, and a sum that cannot be computed `$computed`. Both branches of an `if` count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from coding_model_project.errors import ConfigError

_NESTED = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
"""Text in balanced parentheses, which may hold two more pairs."""
_IN_BRACES = r"(?:[^{}]|\{[^{}]*\})*"
_EXPANSION = (
    rf"\$\(\((?P<sum>{_NESTED})\)\)|(?P<output>\$\({_NESTED}\)|`[^`]*`)|\$(?P<name>\w+|[@*])|"
    rf"\$\{{(?P<braced>\w+|[@*])(?P<all>\[[@*]\])?(?::?(?P<how>[-=+?])(?P<default>{_IN_BRACES}))?\}}"
)
_IN_QUOTES = re.compile(rf'\\(?P<escaped>["\\$`])|{_EXPANSION}')
"""A part that the shell changes between double quotes."""
_QUOTED = rf'"(?P<quoted>(?:\\.|\$\({_NESTED}\)|\$\{{{_IN_BRACES}\}}|[^"\\])*+)"'
_IN_WORD = re.compile(
    rf"'(?P<literal>[^']*)'|{_QUOTED}|\\(?![ \t]*\n)(?P<escaped>.)|{_EXPANSION}", re.DOTALL
)
"""A part that it changes elsewhere in a word."""
_UNNAMED = re.sub("[?]P<[a-z]+>", "?:", _IN_WORD.pattern)
_TOKEN = re.compile(
    # Lines of comments between continued lines are left out too, where bash would stop.
    r"(?P<blank>(?:[ \t\r]|\\[ \t]*\n(?:[ \t]*\#[^\n]*\n)*)+|\#[^\n]*)|(?P<ends>[\n;&|()<>]+)|"
    rf"""(?P<word>(?:{_UNNAMED}|\$\{{[^{{}}\n]*\}}|[^\s;&|()<>'"\\`])+)|(?P<wrong>.)""",
    re.DOTALL,
)
_HERE_DOCUMENT = re.compile(
    r"<<-?[ \t]*['\"]?(\w+)['\"]?([^\n]*)\n.*?\n[ \t]*\1[ \t]*(?=\n|$)", re.DOTALL
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_KEYWORDS = (
    *("then", "do", "else", "{", "export", "local", "declare", "readonly", "if", "!", "exec"),
    "time",
)


class Script:
    """A script, and the variables that it has assigned so far.

    Args:
        folder: where files are that it includes with `source`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._variables: dict[str, list[str]] = {}

    def commands(self, text: str) -> Iterator[list[str]]:
        """Yield the words of each command.

        Raises:
            ConfigError: a quotation has no end.
        """
        words: list[str] = []
        array, skips = "", False
        for token in _TOKEN.finditer(_HERE_DOCUMENT.sub(r"\2", text.replace("\r\n", "\n")) + "\n"):
            kind, shown = token.lastgroup, token[0]
            if kind == "wrong":
                raise ConfigError(f"--verl-overrides: not a shell command: {shown} has no end")
            if kind == "word" and not skips:
                words += self._words(shown)
            elif kind == "word":
                skips = False
            elif kind == "ends" and array:
                if ")" in shown:
                    self._assign(array, words)
                    words, array = [], ""
            elif kind == "ends" and shown[0] == "(" and words and _is_empty(words[-1]):
                array, words = words[-1], []
                if ")" in shown:
                    self._assign(array, [])
                    array = ""
            elif kind == "ends" and ("<" in shown or ">" in shown):
                skips = True
                if words and words[-1].isdigit():
                    words.pop()
            elif kind == "ends":
                yield from self._finished(words)
                words = []
        yield from self._finished(words)

    def _words(self, word: str) -> list[str]:
        """Return the words that a word becomes; a variable that is a whole word may be several."""
        whole = _IN_QUOTES.fullmatch(word.strip('"'))
        name = whole and (whole["name"] or whole["braced"])
        if whole is None or name not in self._variables:
            return [_IN_WORD.sub(self._text, word)]
        values = self._variables[str(name)]
        if whole["all"] or name in ("@", "*") or len(values) != 1:
            return values
        (value,) = values
        several = value.startswith("-") or len(re.findall(r"(?:^|\s)\S+=", value)) > 1
        return value.split() if several else values

    def _text(self, part: re.Match[str]) -> str:
        """Return what a quotation or an expansion within a word becomes."""
        found = part.groupdict()
        for kind in ("literal", "escaped"):
            if found.get(kind) is not None:
                return found[kind]
        if found.get("quoted") is not None:
            return _IN_QUOTES.sub(self._text, found["quoted"])
        if found["sum"] is not None:
            return self._number(found["sum"])
        if found["output"] is not None:
            return "$unknown"
        name, how = found["name"] or found["braced"], found["how"]
        values = self._variables.get(name)
        if (how in ("-", "=") and values is None) or (how == "+" and values is not None):
            default = part.re.sub(self._text, found["default"])
            return default.replace('"', "")  # in quotes only double ones have a meaning
        return f"${name}" if values is None or how == "+" else " ".join(values)

    def _number(self, text: str) -> str:
        names = {name: values[0] for name, values in self._variables.items() if values}
        text = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda name: names.get(name[1], name[0]), text)
        if not re.fullmatch(r"[\d\s+*/%()-]+", text) or "**" in text:
            return "$computed"
        try:
            return str(int(eval(text, {"__builtins__": {}})))  # digits and operators only
        except (ArithmeticError, SyntaxError, TypeError):
            return "$computed"

    def _assign(self, target: str, values: list[str]) -> None:
        """Assign to `NAME=` or add to `NAME+=`."""
        name = target.rstrip("+=")
        self._variables[name] = [*(self._variables.get(name, []) if "+" in target else []), *values]

    def _finished(self, words: list[str]) -> Iterator[list[str]]:
        """Carry out a command's assignments; yield what is left of it."""
        words = [word for word in words if word]
        while words and (words[0] in _KEYWORDS or words[0].startswith("-")):
            words = words[1:]
        while words and (found := _ASSIGNED.fullmatch(words[0])):
            if found[1] == "model_engine":  # a config group, which main_ppo takes
                break
            self._variables[found[1]] = [found[3]]
            words = words[1:]
        if words and words[0] in ("source", "."):
            for name in words[1:2]:
                included = self._folder / without_computed_folder(name)
                if is_file(included):
                    yield from self.commands(included.read_text(errors="replace"))
            return
        inner = (word for word in words if re.search(r"\s-m\s|\.py\s", word) and "python" in word)
        if (script := next(inner, None)) is not None:  # bash -c "…", ray job submit -- bash -c "…"
            yield from self.commands(script)
        elif words:
            yield words


def without_computed_folder(path: str) -> str:
    """Return a path without a folder such as $(pwd) that only the shell knows."""
    return re.sub(r"^\$\w+/", "", path)


def is_file(path: Path) -> bool:
    """Return whether there is such a file; a text may be too long for a name."""
    try:
        return path.is_file()
    except OSError:
        return False


def _is_empty(word: str) -> bool:
    """Return whether a word is `NAME=` or `NAME+=`, before an array."""
    found = _ASSIGNED.fullmatch(word)
    return found is not None and not found[3]
