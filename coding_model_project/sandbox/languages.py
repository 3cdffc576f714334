"""The languages that sandboxes run besides Python, in one table, and programs to try each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from coding_model_project.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A language besides Python."""

    name: str
    aliases: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    on_servers: str | None = None
    """Its name on SandboxFusion servers; None if they do not run it."""
    many_threads: bool = False
    """True if its runtime starts many threads, which a limit on stacks would prevent."""

    def __str__(self) -> str:
        return self.name

    @property
    def hello(self) -> str:
        """A program that prints "hello"."""
        return programs()[self.name]["hello"]


_TABLE = """
c          |                | .c            |               |
cpp        | c++            | .cpp .cc .cxx | cpp           |
javascript | js node nodejs | .js .mjs      | nodejs        | threads
java       |                | .java         | java          | threads
go         | golang         | .go           | go            | threads
rust       | rs             | .rs           | rust          |
bash       | sh shell       | .sh .bash     | bash          |
perl       |                | .pl           | perl          |
lua        |                | .lua          | lua           |
ruby       |                | .rb           | ruby          |
php        |                | .php          | php           |
typescript | ts             | .ts           | typescript    | threads
julia      |                | .jl           | julia         | threads
kotlin     |                | .kts          | kotlin_script | threads
csharp     | c# cs          | .cs           | csharp        | threads
"""
"""Name, aliases, file extensions, name on SandboxFusion servers, and "threads" for `many_threads`."""


def _languages() -> Iterator[Language]:
    for line in _TABLE.strip().splitlines():
        name, aliases, extensions, on_servers, threads = map(str.strip, line.split("|"))
        yield Language(
            name=name,
            aliases=tuple(aliases.split()),
            extensions=tuple(extensions.split()),
            on_servers=on_servers or None,
            many_threads=bool(threads),
        )


LANGUAGES = {one.name: one for one in _languages()}


@cache
def programs() -> dict[str, dict[str, str]]:
    """Return the programs of `programs.txt`, by language and by what they are.

    `hello` prints "hello". Of languages that `conformance` tests, `echo` prints its first line of input,
    `fail` ends with exit code 3, `loop` never ends and prints nothing, and `broken` does not compile.
    """
    text = Path(__file__).with_name("programs.txt").read_text("utf-8")
    found: dict[str, dict[str, str]] = {}
    for language, name, source in re.findall(
        r"^=== (\w+) (\w+)\n([^\0]*?)\n*(?=^===|\Z)", text, re.M
    ):
        found.setdefault(language, {})[name] = source
    return found


_BY_NAME = {
    name: one
    for one in LANGUAGES.values()
    for name in (one.name, *one.aliases, *filter(None, [one.on_servers]))
}

EXTENSIONS = {
    ".py": "python",
    **{suffix: one.name for one in LANGUAGES.values() for suffix in one.extensions},
}
"""Names of languages by file extension."""


def named(name: str) -> Language:
    """Return the language of this name or alias.

    Raises:
        ConfigError: there is none.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.lower() in ("python", *_BY_NAME):
        raise ConfigError(f"language={name}: language names are lower case; use {name.lower()}")
    near = get_close_matches(name.lower(), ("python", *_BY_NAME), n=1)
    raise ConfigError(
        f"language={name}: no such language{f'; did you mean {near[0]}?' if near else ''}; there are "
        f"python, {', '.join(LANGUAGES)}"
    )
