"""Detection of the language in a fence's info string, in any spelling that models use.

`python`, `Python3`, `py3.11`, `python title="a.py"`, `python:main.py`, `{.python .numberLines}`,
`language-python`, `main.py` and `code python` all name Python.
"""

from __future__ import annotations

import re
from functools import lru_cache

from coding_model_project.sandbox.languages import EXTENSIONS, LANGUAGES

_SPELLINGS = {
    "python": ("python", "pypy", "ipython", "cpython"),
    "cpp": ("g++", "gnu++"),
    "javascript": ("cjs", "ecmascript"),
    "bash": ("zsh",),
}
"""Names of languages in info strings only."""
_LANGUAGE = {
    **{suffix.removeprefix("."): language for suffix, language in EXTENSIONS.items()},
    **{name: one.name for one in LANGUAGES.values() for name in (one.name, *one.aliases)},
    **{name: language for language, names in _SPELLINGS.items() for name in names},
}
_SAYS_NOTHING = {
    "answer", "code", "codeblock", "file", "filename", "final", "lang", "language", "name", "path",
    "program", "snippet", "solution", "source", "title",
}  # fmt: skip
"""Words that are not languages; a later word may be one."""

_SEPARATORS = re.compile(r"[\s,;:{}()\[\]<>=\"'|`]+")
_PREFIX = re.compile(r"(?:language|lang)-|\.")
_VERSION = re.compile(r"[\d.]*$")
_LOOKED_AT = 200
"""Maximum number of characters read of an info string."""


def language_of(info: str) -> str:
    """Return our name of a known language, the word itself for any other, "" without one."""
    return _language_of(info[:_LOOKED_AT])


@lru_cache(maxsize=1024)
def _language_of(info: str) -> str:
    for word in _SEPARATORS.split(info.lower()):
        word = _PREFIX.sub("", word, count=1) if _PREFIX.match(word) else word
        name = _VERSION.sub("", word, count=1)
        if name[:1].isalpha() and name not in _SAYS_NOTHING:
            extension = name.rpartition(".")[2]
            return _LANGUAGE.get(name) or _LANGUAGE.get(extension) or word
    return ""
