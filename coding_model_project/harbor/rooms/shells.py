"""Detection of shell constructs that run data as code, so that the origin of commands is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator

_EVAL = re.compile(
    r"(?:^|[;&|({`]|\b(?:then|do|else|if|while|until|!|builtin|command))\s*(eval|let|trap)\b",
    re.MULTILINE,
)
_COMMAND_WORD = re.compile(
    r"(?:^|[;&|(`]|\b(?:then|do|else|if|while|until|!|command|exec|builtin|time)\b|^[^()\n]*\))[ \t]*"
    r"(?:\w+=\S*[ \t]+)*\"?(\$\((?!\()|`|\$\{?(\w+))",
    re.MULTILINE,
)
"""A command with a computed name."""
_ARITHMETIC = re.compile(
    r"\(\((?P<a>.*?)\)\)|\[\[(?P<b>[^\n]*?\s-(?:eq|ne|lt|le|gt|ge|v)\s[^\n]*?)\]\]", re.DOTALL
)
"""Arithmetic: bash evaluates names and their values recursively, including commands in subscripts."""
_DECLARED = re.compile(
    r"\b(?:declare|typeset|local)\s+-\w*[in]|\bprintf\s+-v|\$\{![\w]|\btest\s+-v|\[\s+-v|\bread\s[^\n;|]*\["
)
_SUBSCRIPT = re.compile(r"\$\{\w+\[(?P<index>[^\]@*]+)\]|\b\w+\[(?P<target>[^\]]+)\]\+?=")
_NAME = re.compile(r"\$\(|`|\$?\{?\b([A-Za-z_]\w*)\b")
_NUMBER = re.compile(
    r"""['"]?-?\d+['"]?|\$[?#]|\$\(\([^()]*\)\)|['"]?\$\{?(?:#\w+|PIPESTATUS\[\d\])\}?['"]?"""
)
_KNOWN = {"PIPESTATUS", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "BASHPID", "PPID"}


def runs_data(text: str) -> str | None:
    """Return the construct of a script that may run data as code; None if there is none."""
    text = _bare(text)
    for found in _EVAL.finditer(text):
        if found[1] != "trap" or "$" in text[found.end() :].split("\n")[0].partition("'")[0]:
            return found[1]
    if found := _DECLARED.search(text):
        return found[0].strip()
    for found in _COMMAND_WORD.finditer(text):
        if found[2] is None or not _is_fixed(found[2], text):
            return "a command with a computed name"
    for expression in _expressions(text):
        for name in _NAME.finditer(expression):
            if name[1] is None:
                return "arithmetic on a command's output"
            if name[1] not in _KNOWN and not _is_number(name[1], text):
                return f"arithmetic on {name[1]}"
    return None


def _expressions(text: str) -> Iterator[str]:
    for found in _ARITHMETIC.finditer(text):
        if found["a"] is not None:
            yield found["a"]
        else:
            # bash evaluates only the operands of numeric comparisons
            for pair in re.finditer(
                r"(\S+)\s+-(?:eq|ne|lt|le|gt|ge)\s+(\S+)|-v\s+(\S+)", found["b"]
            ):
                yield from (_operand(word) for word in pair.groups() if word)
    for found in _SUBSCRIPT.finditer(text):
        yield found["index"] or found["target"]


def _operand(word: str) -> str:
    return "" if _NUMBER.fullmatch(word) else word


def _assigned(name: str, text: str) -> list[str]:
    values = re.findall(
        rf"""(?m)(?:^|[\s;&|(]){name}\+?=((?:"[^"]*"|'[^']*'|\$\(\(.*?\)\)|[^\s;&|)])*)""", text
    )
    if re.search(rf"\b(?:read|mapfile|readarray|getopts)\b[^\n;|]*\b{name}\b", text):
        values.append("$(read)")
    for words in re.findall(rf"\bfor\s+{name}\s+in\s+([^\n;]*)", text):
        values += words.split()
    return values


def _is_number(name: str, text: str) -> bool:
    """Return whether all assignments to a variable are numbers."""
    in_for = re.search(rf"\(\(\s*{name}\s*=", text)
    values = _assigned(name, text)
    return bool(values or in_for) and all(_NUMBER.fullmatch(value) for value in values)


def _is_fixed(name: str, text: str) -> bool:
    """Return whether a variable only holds the script's own words."""
    values = _assigned(name, text)
    return bool(values) and not any("$" in value or "`" in value for value in values)


_HERE = re.compile(
    r"(<<-?\s*['\"\\]?(\w+)['\"]?[^\n]*\n)(?:.*?\n)?[\t ]*\2[ \t]*$", re.DOTALL | re.MULTILINE
)
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|(?:^|(?<=\s))#[^\n]*", re.DOTALL | re.MULTILINE)


def _bare(text: str) -> str:
    """Return a script without here-documents, comments, and quoted text that looks like commands."""

    def shown(found: re.Match[str]) -> str:
        quoted = found[0]
        if quoted.startswith("#"):
            return " "
        if quoted.startswith("'"):
            return "'" + re.sub(r"[^\d-]", "x", quoted[1:-1]) + "'"
        return quoted if "$(" in quoted or "`" in quoted else re.sub(r"[;&|({\n]", " ", quoted)

    return _QUOTED.sub(shown, _HERE.sub(r"\1", text).replace("\\\n", " "))
