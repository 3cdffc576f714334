"""Kinds of programs, and the code in their command lines.

Any program that is not listed here counts as an interpreter, which may run any file that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

_TOOLS = """
[ arch b2sum base32 base64 basename basenc bunzip2 bzcat bzip2 cat chgrp chmod chown cksum cmp comm
cp csplit cut date dd df diff diff3 dir dircolors dirname du echo egrep env expand expr factor false
fgrep find fmt fold getopt grep groups gunzip gzip head hexdump hostname iconv id install join kill
link ln logname ls lsof md5sum mkdir mkfifo mktemp mv nice nl nohup nproc numfmt od paste pathchk
pgrep pidof pinky pkill pr printenv printf ps ptx pwd readlink realpath rev rm rmdir sdiff seq
setsid sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat stdbuf
strings stty sum sync tac tail tar tee test timeout touch tr true truncate tsort tty uname unexpand
uniq unlink unxz unzip uptime uudecode uuencode vdir wc which who whoami xargs xxd xz xzcat yes zcat
zip awk gawk mawk original-awk sed
"""
"""Programs that only follow their command line, whatever the files that they read contain."""

_COPIERS = "bzip2 cat cp dd gzip head install ln mv rev sed sort tac tail tar tee unzip xz"

_COMPILERS = re.compile(
    r"(?:[\w.]+-linux-gnu-)?(?:gcc|g\+\+|cc|c\+\+|cpp|cc1|cc1plus|collect2|lto1|lto-wrapper|as|ld(?:\.\w+)?"
    r"|ar|gcc-ar|ranlib|strip|objcopy|nm|objdump|readelf|size|clang|clang\+\+|lld)(?:-[\d.]+)?"
)
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_SHELLS = frozenset(("bash", "sh", "dash", "rbash"))
_SCRIPTED = re.compile(r"(?:node|nodejs|perl|ruby|php|lua|tclsh|Rscript)[\d.]*")
_PROGRAM_FIRST = re.compile(r"(?:g|m|original-)?awk|sed")
_RUNNERS = """
pytest py.test nose2 tox nox coverage pip pip3 uv npm npx jest mocha yarn pnpm cargo go make cmake
ctest java javac rspec rake bundle mvn gradle bats
"""
"""Names of tools, in any folder."""

_PYTHON_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
_SHELL_WITH_VALUE = ("--rcfile", "--init-file", "-o", "+o", "-O", "+O")


class Kind(Enum):
    """The way in which a program uses the files that it reads."""

    tool = "tool"
    compiler = "compiler"
    python = "python"
    shell = "shell"
    scripted = "scripted"
    other = "other"


def kind(name: str) -> Kind:
    """Return the kind of one of the image's programs, by its file's name."""
    if name in _TOOLS.split():
        return Kind.tool
    if _COMPILERS.fullmatch(name):
        return Kind.compiler
    if _PYTHON.fullmatch(name):
        return Kind.python
    if name in _SHELLS:
        return Kind.shell
    return Kind.scripted if _SCRIPTED.fullmatch(name) else Kind.other


def copies(name: str) -> bool:
    """Return whether a tool passes its input on, more or less unchanged."""
    return name in _COPIERS.split()


def is_runner(name: str) -> bool:
    """Return whether a name is a tool's: a verifier that starts it does not expect agent code."""
    return name in _RUNNERS.split() or kind(name) is not Kind.other


@dataclass(frozen=True, slots=True)
class Code:
    """The source of an interpreter's program."""

    inline: tuple[str, ...] = ()
    """Code in the arguments."""
    script: str | None = None
    module: str | None = None
    stdin: bool = False


def code(name: str, arguments: Sequence[str]) -> Code:
    """Return the code that a command line runs.

    Args:
        name: name of the program's file.
        arguments: its arguments, without its own name.
    """
    match kind(name):
        case Kind.python:
            return _python(list(arguments))
        case Kind.shell:
            return _shell(list(arguments))
        case Kind.scripted:
            return _scripted(arguments)
        case _ if _PROGRAM_FIRST.fullmatch(name):
            return _program_first(name, list(arguments))
        case _:
            return Code()


def _python(words: list[str]) -> Code:
    while words:
        word = words.pop(0)
        if word in _PYTHON_WITH_VALUE:
            del words[:1]
        elif word == "-" or not word.startswith("-"):
            return Code(stdin=True) if word == "-" else Code(script=word)
        elif not word.startswith("--"):
            for at, letter in enumerate(word):
                value = word[at + 1 :] or (words[0] if words else "")
                if letter == "c":
                    return Code(inline=(value,))
                if letter == "m":
                    return Code(module=value)
                if letter in "XW":
                    break
    return Code(stdin=True)


def _shell(words: list[str]) -> Code:
    while words:
        word = words.pop(0)
        if word in _SHELL_WITH_VALUE:
            del words[:1]
        elif word[:1] in "-+" and len(word) > 1 and word != "--":
            if "s" in word and not word.startswith("--"):
                return Code(stdin=True)
            if "c" in word and not word.startswith("--"):
                rest = [w for w in words if not w.startswith(("-", "+"))]
                return Code(inline=tuple(rest[:1]))
        else:
            name = words.pop(0) if word in ("--", "-") and words else word
            return Code(script=name) if name not in ("-", "--") else Code(stdin=True)
    return Code(stdin=True)


def _scripted(words: Sequence[str]) -> Code:
    """Parse the command line of other interpreters: only options that contain or name code count."""
    if not words:
        return Code(stdin=True)
    if not words[0].startswith("-"):
        return Code(script=words[0])
    shown = re.compile(r"-\w*[eEpr]|--eval|--print|--run|--require|--import")
    return Code(inline=tuple(b for a, b in pairwise(words) if shown.fullmatch(a)))


def _program_first(name: str, words: list[str]) -> Code:
    given: list[str] = []
    while words:
        word = words.pop(0)
        if word in ("-e", "--expression", "-f", "--file", "-v", "-F"):
            value = words.pop(0) if words else ""
            if word in ("-f", "--file"):
                return Code(script=value)
            if word in ("-e", "--expression"):
                given.append(value)
        elif word.startswith("-") and word != "-":
            if "e" in word[1:2] and name == "sed":
                given.append(word[2:])
        else:
            return Code(inline=tuple(given) or (word,))
    return Code(inline=tuple(given))
