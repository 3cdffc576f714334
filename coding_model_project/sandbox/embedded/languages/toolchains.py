"""Toolchains of languages other than Python on this machine.

    cpp         g++, static; compiled stage by stage in confined processes    every tier
    javascript  node                                                          every tier
    java        javac and java, 17 or later                                   every tier
    go          its compiler and linker, one by one; no modules               every tier
    rust        rustc, then ld; static, no crates                             every tier
    bash        bash and common text tools                            tier namespaces, Linux 6.14

Bash programs need processes. Only a PID namespace reliably ends all of them, and only a namespace with
its own limit bounds their number.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from coding_model_project.errors import ConfigError
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded.languages import cpp, go, java, rust, tools
from coding_model_project.sandbox.embedded.languages.binaries import Binaries
from coding_model_project.sandbox.embedded.languages.build import Recipe
from coding_model_project.sandbox.embedded.launch import Profile, can_bound_processes
from coding_model_project.types import Limits

_ELSEWHERE = "; a SandboxFusion server can run it (coding.sandbox.name=fusion)"


class Language(StrEnum):
    """A language that the embedded sandbox runs besides Python."""

    cpp = "cpp"
    javascript = "javascript"
    java = "java"
    go = "go"
    rust = "rust"
    bash = "bash"

    @property
    def hello(self) -> str:
        """A program that prints "hello"."""
        return _HELLO[self]


_HELLO = {
    Language.cpp: '#include <bits/stdc++.h>\nint main() { std::cout << "hello"; }',
    Language.javascript: 'console.log("hello")',
    Language.java: 'class Main { public static void main(String[] a) { System.out.print("hello"); } }',
    Language.go: 'package main\nimport "fmt"\nfunc main() { fmt.Print("hello") }',
    Language.rust: 'fn main() { print!("hello") }',
    Language.bash: "echo hello | cat",
}
_ALIASES = {
    "c++": Language.cpp,
    "js": Language.javascript,
    "node": Language.javascript,
    "nodejs": Language.javascript,
    "golang": Language.go,
    "rs": Language.rust,
    "sh": Language.bash,
    "shell": Language.bash,
}

_SERVERS_ONLY = ("perl", "lua", "ruby", "php", "typescript", "julia")
"""Languages that only SandboxFusion servers run."""


class Toolchain(Protocol):
    """The tools that build and run programs in a language."""

    @property
    def version(self) -> str: ...
    @property
    def profile(self) -> Profile: ...
    @property
    def readable(self) -> list[str]:
        """Host files and folders that it needs besides `confine.READABLE`."""
        ...

    @property
    def binaries(self) -> Binaries: ...
    def prepare(self) -> None:
        """Make its files on disk, unless they exist."""
        ...

    def recipe(self, limits: Limits, source: bytes) -> Recipe: ...


def named(name: str) -> Language:
    """Return the language of this name.

    Raises:
        ConfigError: the embedded sandbox does not run it.
    """
    language = _ALIASES.get(name, name)
    if language not in list(Language):
        known = ["python", *Language]
        if name.lower() in (*known, *_ALIASES):
            raise ConfigError(f"language={name}: language names are lower case; use {name.lower()}")
        if name in _SERVERS_ONLY:
            raise ConfigError(
                f"language={name}: the embedded sandbox runs {', '.join(known)}{_ELSEWHERE}"
            )
        near = get_close_matches(name.lower(), (*known, *_ALIASES, *_SERVERS_ONLY), n=1)
        raise ConfigError(
            f"language={name}: no such language{f'; did you mean {near[0]}?' if near else ''}; the "
            f"embedded sandbox runs {', '.join(known)}, and SandboxFusion servers also "
            f"{', '.join(_SERVERS_ONLY)}"
        )
    return Language(language)


def toolchain(name: str, tier: Tier) -> Toolchain:
    """Return a language's toolchain for a tier.

    Raises:
        ConfigError: the language does not run; with the reason and a remedy.
    """
    language = named(name)
    if problem := why_not(language, tier):
        raise ConfigError(refusal(language, problem))
    found = _found(language)
    assert not isinstance(found, str)
    return found


def refusal(language: Language, problem: str) -> str:
    """Return the error message for a language that does not run, with a remedy."""
    return f"{language} programs do not run here: {problem}{_ELSEWHERE}"


def why_not(language: Language, tier: Tier) -> str | None:
    """Return why a language does not run at a tier, or None if it runs."""
    if language is Language.bash and tier is not Tier.namespaces:
        return f"they start processes, which tier {tier} cannot reliably end (namespaces can)"
    if language is Language.bash and not can_bound_processes():
        return "nothing limits the number of their processes before Linux 6.14"
    found = _found(language)
    return found if isinstance(found, str) else None


def available(tier: Tier) -> list[Language]:
    """Return the languages that run at a tier."""
    return [language for language in Language if why_not(language, tier) is None]


def summary(tier: Tier) -> str:
    """Return one line with the languages that run at a tier, their versions, and why others do not."""
    parts = ["python"]
    for language in Language:
        problem, chain = why_not(language, tier), _found(language)
        if problem or isinstance(chain, str):
            parts.append(f"not {language} ({problem})")
        else:
            parts.append(f"{language} ({chain.version})")
    return ", ".join(parts)


@lru_cache
def _found(language: Language) -> Toolchain | str:
    """Return a language's toolchain, or what is missing for it."""
    match language:
        case Language.cpp:
            return cpp.find() or "g++ with static libraries, as and ld are not installed"
        case Language.javascript:
            return _find_node() or "node 16 or later is not installed"
        case Language.java:
            return java.find()
        case Language.go:
            return go.find()
        case Language.rust:
            return rust.find()
        case Language.bash:
            return _find_bash() or "bash is not installed"


# ── interpreters ──────────────────────────────────────────────────────────────────────────────────

_OLDEST_NODE = 16

_TOOLS = """
sh cat cut tr sort uniq head tail wc seq expr printf echo test [ true false tac rev paste join comm nl
fold fmt shuf factor od tee grep egrep fgrep sed awk gawk mawk bc dc xargs find ls mkdir rmdir rm mv
cp ln touch mktemp basename dirname date sleep env split csplit md5sum sha1sum sha256sum base64 cmp
diff column numfmt readlink realpath stat pwd timeout yes expand unexpand tsort chmod id uname
hostname dd truncate mkfifo getopt hexdump xxd cal ps kill sum cksum wait
"""
"""Commands in a bash program's path: tools for text and files, nothing for networks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interpreter:
    """An interpreter that checks sources and runs them."""

    version: str
    profile: Profile
    readable: list[str]
    source: str
    check: list[str]
    command: list[str]
    heap_option: str = ""
    """Option that limits the interpreter's own heap; megabytes are appended."""

    @property
    def binaries(self) -> Binaries:
        raise AssertionError("an interpreted program has no binary")

    def prepare(self) -> None:
        """Do nothing: an interpreter keeps no files on disk."""

    def recipe(self, limits: Limits, source: bytes) -> Recipe:
        heap = [f"{self.heap_option}{limits.memory_mb}"] if self.heap_option else []
        interpreter, *options = self.command
        return Recipe(
            source=self.source,
            stages=[[*self.check, self.source]],
            run=[interpreter, *heap, *options, self.source],
        )


def _find_node() -> _Interpreter | None:
    path = tools.which("node")
    version = tools.output_or_none(path, "--version") if path else None
    if not path or not version or int(version.lstrip("v").split(".")[0]) < _OLDEST_NODE:
        return None
    return _Interpreter(
        version=f"node {version.lstrip('v')}",
        profile=Profile.runtime,
        readable=[path],
        source="main.js",
        check=[path, "--check"],
        # Recursion as deep as in other languages; an in-memory file has no path to resolve.
        command=[path, "--stack-size=60000", "--preserve-symlinks-main"],
        heap_option="--max-old-space-size=",
    )


def _find_bash() -> _Interpreter | None:
    path = tools.which("bash")
    version = tools.output_or_none(path, "-c", "echo $BASH_VERSION") if path else None
    if not path or not version:
        return None
    commands = [found for name in _TOOLS.split() if (found := shutil.which(name))]
    folders = [name for name in ("/bin", "/usr/bin") if Path(name).is_symlink()]
    return _Interpreter(
        version=f"bash {version.split('(')[0]}",
        profile=Profile.shell,
        readable=[*folders, path, "/usr/bin/bash", *commands],
        source="main.sh",
        check=[path, "-n"],
        command=[path],
    )
