"""Detection of literals that span lines: a fence or marker inside one belongs to the program."""

from __future__ import annotations

import ast
import re
import warnings
from contextvars import ContextVar
from dataclasses import dataclass

MAX_PARSED = 100_000
"""Maximum cost of a program to parse, in characters; each takes up to 5 µs."""

MAX_PARSED_OF_A_TEXT = 3 * MAX_PARSED
"""Maximum cost of all programs that are parsed to find the one in a text."""

_SHARE_OF_FIELDS = 1e-4
"""Cost of a field of an f-string, per character of the program: CPython searches the string for it."""

_F_STRING = re.compile(r"(?i)(?<![a-z0-9_])(?:f|fr|rf)['\"]")

parse_budget: ContextVar[float | None] = ContextVar("cost left for a text", default=None)
"""Cost that may still be parsed of the text that `extract.of_one_text` reads."""


class TooLong(ValueError):
    """A program, or one of too many, that takes too long to parse."""


def syntax_tree(code: str) -> ast.Module:
    """Parse a program of unknown origin.

    Raises:
        TooLong: it costs more than `MAX_PARSED`, or than is left for its text (`extract.of_one_text`).
        SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse`.
    """
    cost: float = len(code)
    if _F_STRING.search(code):
        cost += code.count("{") * len(code) * _SHARE_OF_FIELDS
    of_text = parse_budget.get()
    if cost > (MAX_PARSED if of_text is None else min(of_text, MAX_PARSED)):
        raise TooLong(f"a program of {len(code)} characters")
    if of_text is not None:
        parse_budget.set(of_text - cost)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in untrusted code
        return ast.parse(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of reading a piece of a program."""

    whole: bool
    """True if it parses or, in a language without a parser here, has no open literal at its end."""
    until: str | None = None
    """The mark that would end the multi-line literal that is open at its end."""


def read(code: str, language: str) -> Reading:
    """Read the code, in time linear in its length."""
    if language == "python":
        return _python(code)
    find = _OPEN.get(language)
    until = find(code) if find else None
    return Reading(whole=until is None, until=until)


def parses(code: str) -> bool:
    """Return whether Python can parse the code; code that takes too long to parse counts as parsed."""
    return _python(code).whole


def _python(code: str) -> Reading:
    try:
        syntax_tree(code)
    except TooLong:
        return Reading(whole=True)
    except SyntaxError as error:
        return Reading(whole=False, until=_open_quotes(code, error))
    except (ValueError, RecursionError, MemoryError):
        return Reading(whole=False)
    return Reading(whole=True)


def _open_quotes(code: str, error: SyntaxError) -> str | None:
    """Return the quotes of the string that is open at the code's end, from the error's position."""
    if "unterminated triple-quoted" not in (error.msg or ""):
        return None
    lines = code.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # as Python counts them
    line = lines[(error.lineno or 1) - 1]
    found = _QUOTES.search(line, max(0, (error.offset or 1) - 1))
    return found[0] if found else None


_QUOTES = re.compile(r"'''|\"\"\"")
_HEREDOC = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Za-z_]\w*))")
_RAW_STRING = re.compile(r'R"([^\s()\\"]{0,16})\(')


def _heredoc_word(code: str) -> str | None:
    """Return the word that ends Bash's open here-document."""
    waiting: list[tuple[str, bool]] = []
    for line in code.split("\n"):
        if waiting:
            word, tabs = waiting[0]
            if (line.lstrip("\t") if tabs else line) == word:
                del waiting[0]
        elif "<<" in line and "<<<" not in line and not line.lstrip().startswith("#"):
            found = _HEREDOC.finditer(line)
            waiting = [(one[2] or one[3] or one[4], bool(one[1])) for one in found]
    return waiting[0][0] if waiting else None


def _raw_string_end(code: str) -> str | None:
    """Return the characters that end C++'s open raw string."""
    at = 0
    while opened := _RAW_STRING.search(code, at):
        end = f'){opened[1]}"'
        at = code.find(end, opened.end())
        if at < 0:
            return end
    return None


_OPEN = {"bash": _heredoc_word, "cpp": _raw_string_end}
