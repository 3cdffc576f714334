"""Toolchains of languages other than Python on this machine.

    c, cpp      gcc, g++; static; compiled stage by stage, confined           every tier
    javascript  node                                                          every tier
    java        javac and java, 17 or later                                   every tier
    go          its compiler and linker, one by one; no modules               every tier
    rust        rustc, then ld; static, no crates                             every tier
    perl        perl                                                          every tier
    bash        bash and common text tools                            tier namespaces, Linux 6.14

Bash programs need processes. Only a PID namespace reliably ends all of them, and only a namespace with
its own limit bounds their number.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded.languages import build, cpp, go, java, rust
from coding_model_project.sandbox.embedded.languages.build import Recipe, Toolchain
from coding_model_project.sandbox.embedded.launch import Profile, can_bound_processes
from coding_model_project.sandbox.languages import Language, named
from coding_model_project.types import Limits


def toolchain(name: str, tier: Tier) -> Toolchain:
    """Return a language's toolchain for a tier.

    Raises:
        ConfigError: the language does not run; with the reason and a remedy.
    """
    language = named(name)
    if problem := why_not(language.name, tier):
        raise ConfigError(refusal(language, problem))
    found = _found(language.name)
    assert not isinstance(found, str)
    return found


def refusal(language: Language, problem: str) -> str:
    """Return the error message for a language that does not run, with a remedy if there is one."""
    refused = f"language={language}: {language} programs do not run here: {problem}"
    if language.on_servers is None:
        return refused
    return (
        f"{refused}; a SandboxFusion server can run them (coding.sandbox.urls=[http://host:8080])"
    )


def why_not(name: str, tier: Tier) -> str | None:
    """Return why a language does not run at a tier, or None if it runs."""
    if name == "bash" and tier is not Tier.namespaces:
        return f"they start processes, which tier {tier} cannot reliably end (namespaces can)"
    if name == "bash" and not can_bound_processes():
        return "nothing limits the number of their processes before Linux 6.14"
    found = _found(name)
    return found if isinstance(found, str) else None


def available(tier: Tier) -> list[str]:
    """Return the languages that run at a tier."""
    return [name for name in _FINDERS if why_not(name, tier) is None]


def summary(tier: Tier) -> str:
    """Return one line with the languages that run at a tier, their versions, and why others do not."""
    parts = ["python"]
    for name in _FINDERS:
        problem, chain = why_not(name, tier), _found(name)
        if problem or isinstance(chain, str):
            parts.append(f"not {name} ({problem})")
        else:
            parts.append(f"{name} ({chain.version})")
    return ", ".join(parts)


@lru_cache
def _found(name: str) -> Toolchain | str:
    """Return a language's toolchain, or what is missing for it."""
    if name not in _FINDERS:
        return f"the embedded sandbox runs python, {', '.join(_FINDERS)}"
    return _FINDERS[name]()


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


def _interpreter(
    version: str,
    readable: list[str],
    source: str,
    command: list[str],
    check: str,
    *,
    profile: Profile = Profile.native,
    heap_option: str = "",
) -> Toolchain:
    """Return the toolchain of an interpreter that checks sources and runs them.

    Args:
        check: the option by which it only checks a source.
        heap_option: limits the interpreter's own heap; megabytes are appended.
    """
    path, *options = command

    def recipe(limits: Limits, _source: bytes) -> Recipe:
        heap = [f"{heap_option}{limits.memory_mb}"] if heap_option else []
        return Recipe(
            source=source,
            stages=[[path, check, source]],
            run=[path, *heap, *options, source],
        )

    return Toolchain(version=version, readable=readable, recipe=recipe, profile=profile)


def _find_node() -> Toolchain | str:
    path = build.which("node")
    version = build.output_or_none(path, "--version")
    if not path or not version or int(version.lstrip("v").split(".")[0]) < _OLDEST_NODE:
        return f"node {_OLDEST_NODE} or later is not installed"
    # Recursion as deep as in other languages; an in-memory file has no path to resolve.
    command = [path, "--stack-size=60000", "--preserve-symlinks-main"]
    return _interpreter(
        f"node {version.lstrip('v')}", [path], "main.js", command, "--check",
        profile=Profile.runtime, heap_option="--max-old-space-size=",
    )  # fmt: skip


def _find_perl() -> Toolchain | str:
    path = build.which("perl")
    found = build.output_or_none(path, "-e", r'print join "\n", sprintf("%vd", $^V), @INC')
    if not path or not found:
        return "perl is not installed"
    version, *library = found.splitlines()
    readable = [path, *(folder for folder in library if Path(folder).is_dir())]
    return _interpreter(f"perl {version}", readable, "main.pl", [path], "-c")


def _find_bash() -> Toolchain | str:
    path = build.which("bash")
    version = build.output_or_none(path, "-c", "echo $BASH_VERSION")
    if not path or not version:
        return "bash is not installed"
    commands = [found for name in _TOOLS.split() if (found := shutil.which(name))]
    folders = [name for name in ("/bin", "/usr/bin") if Path(name).is_symlink()]
    readable = [*folders, path, "/usr/bin/bash", *commands]
    version = f"bash {version.split('(')[0]}"
    return _interpreter(version, readable, "main.sh", [path], "-n", profile=Profile.shell)


_FINDERS: dict[str, Callable[[], Toolchain | str]] = {
    "c": lambda: cpp.find("c"),
    "cpp": lambda: cpp.find("cpp"),
    "javascript": _find_node,
    "java": java.find,
    "go": go.find,
    "rust": rust.find,
    "perl": _find_perl,
    "bash": _find_bash,
}
EMBEDDED = tuple(_FINDERS)
"""The languages besides Python that the embedded sandbox runs, where their tools are installed."""
