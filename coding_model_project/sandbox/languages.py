"""The languages that sandboxes run besides Python, in one table, and programs to try each."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from coding_model_project.errors import ConfigError

_TABLE = """
c          |                | .c
cpp        | c++            | .cpp .cc .cxx
javascript | js node nodejs | .js .mjs
java       |                | .java
go         | golang         | .go
rust       | rs             | .rs
bash       | sh shell       | .sh .bash
perl       |                | .pl
"""
"""Name, aliases and file extensions."""


_ROWS = [[cell.split() for cell in line.split("|")] for line in _TABLE.strip().splitlines()]

LANGUAGES = tuple(name for (name,), _, _ in _ROWS)
"""Names of the languages."""

NAMES = {given: name for (name,), aliases, _ in _ROWS for given in (name, *aliases)}
"""Names of languages by name and alias."""

EXTENSIONS = {".py": "python"} | {
    extension: name for (name,), _, extensions in _ROWS for extension in extensions
}
"""Names of languages by file extension."""


@cache
def programs() -> dict[str, dict[str, str]]:
    """Return the programs of `programs.txt`, by language and by what they are.

    `hello` prints "hello", `echo` prints its first line of input, `fail` ends with exit code 3, `loop`
    never ends and prints nothing, and `broken` does not compile.
    """
    text = Path(__file__).with_name("programs.txt").read_text("utf-8")
    found: dict[str, dict[str, str]] = {}
    for language, name, source in re.findall(
        r"^=== (\w+) (\w+)\n([^\0]*?)\n*(?=^===|\Z)", text, re.M
    ):
        found.setdefault(language, {})[name] = source
    return found


def named(name: str) -> str:
    """Return the name of the language with this name or alias.

    Raises:
        ConfigError: there is none.
    """
    if name in NAMES:
        return NAMES[name]
    if name.lower() in ("python", *NAMES):
        raise ConfigError(f"language={name}: language names are lower case; use {name.lower()}")
    near = get_close_matches(name.lower(), ("python", *NAMES), n=1)
    raise ConfigError(
        f"language={name}: no such language{f'; did you mean {near[0]}?' if near else ''}; there are "
        f"python, {', '.join(LANGUAGES)}"
    )
