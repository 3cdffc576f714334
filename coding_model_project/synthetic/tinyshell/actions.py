"""The actions of tasks: a change to a file, the command for it, and the usual mistake.

In words and commands {f} stands for the existing file, {g} for a new name, {w} for a word. Each mistake
exits with code 0 and without output, like the right command: only the verifier can tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Files = dict[str, str]
"""Contents of the working directory's files by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The file, new name and word of an action."""

    f: str
    g: str
    w: str


Effect = Callable[[Files, Names], Files]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One change to a file."""

    key: str
    words: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    effect: Effect
    """A function from the files before to those after; {f} has unsorted lines, one of them twice."""
    reads: bool = True
    """True if {f} must exist."""
    keeps: bool = False
    """True if {g} then holds the content of {f}, so that another action can continue with it."""


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _made(make: Callable[[list[str], str], str]) -> Effect:
    """Return an effect that writes `make`'s result for {f}'s lines and the word to {g}."""
    return lambda files, n: {**files, n.g: make(_lines(files[n.f]), n.w)}


def _without(files: Files, name: str) -> Files:
    return {path: text for path, text in files.items() if path != name}


def _action(key: str, words: str, right: str, wrong: str, effect: Effect, **more: bool) -> Action:
    commands = tuple(right.split("\n"))
    return Action(
        key=key, words=words, right=commands, wrong=tuple(wrong.split("\n")), effect=effect, **more
    )


ACTIONS = (
    _action("write", "Write {w} into {g}.", "echo {w} > {g}", "echo {g} > {w}",
            lambda files, n: {**files, n.g: n.w + "\n"}, reads=False),
    _action("append", "Append {w} to {f}.", "echo {w} >> {f}", "echo {w} > {f}",
            lambda files, n: {**files, n.f: files[n.f] + n.w + "\n"}),
    _action("copy", "Copy {f} to {g}.", "cp {f} {g}", "mv {f} {g}",
            lambda files, n: {**files, n.g: files[n.f]}, keeps=True),
    _action("rename", "Rename {f} to {g}.", "mv {f} {g}", "cp {f} {g}",
            lambda files, n: {**_without(files, n.f), n.g: files[n.f]}, keeps=True),
    _action("delete", "Delete {f}.", "rm {f}", "> {f}", lambda files, n: _without(files, n.f)),
    _action("count", "Count the lines of {f} into {g}.", "wc -l < {f} > {g}", "wc -l {f} > {g}",
            _made(lambda lines, _: f"{len(lines)}\n")),
    _action("sort", "Sort {f} into {g}.", "sort {f} > {g}", "cat {f} > {g}",
            _made(lambda lines, _: "".join(sorted(lines)))),
    _action("unique", "Sort {f} without repeats into {g}.", "sort -u {f} > {g}", "sort {f} > {g}",
            _made(lambda lines, _: "".join(sorted(set(lines))))),
    _action("first", "Put the first line of {f} into {g}.", "head -n 1 {f} > {g}", "head {f} > {g}",
            _made(lambda lines, _: lines[0])),
    _action("last", "Put the last line of {f} into {g}.", "tail -n 1 {f} > {g}", "tail {f} > {g}",
            _made(lambda lines, _: lines[-1])),
    _action("reverse", "Put the lines of {f} in reverse into {g}.", "tac {f} > {g}",
            "sort -r {f} > {g}", _made(lambda lines, _: "".join(reversed(lines)))),
    _action("select", "Put the lines of {f} with {w} into {g}.", "grep {w} {f} > {g}",
            "grep -v {w} {f} > {g}",
            _made(lambda lines, w: "".join(line for line in lines if w in line))),
    _action("folder", "Make a folder {g} and move {f} into it.", "mkdir {g}\nmv {f} {g}",
            "mv {f} {g}",
            lambda files, n: {**_without(files, n.f), f"{n.g}/{n.f}": files[n.f]}),
)  # fmt: skip
