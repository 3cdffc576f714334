"""A generator of tasks from actions: names and contents, the files afterwards, and splits.

A task is one or two actions with at most two commands. All splits share a few words for names and
contents, but no sentence: an action with its names belongs to one split, so training never sees a part
of a test task.

Each role of a name has words of its own, so a word determines its place in a command: a model trained
for minutes cannot learn to infer that place from the sentence.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, product

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


VERSION = 3
"""Increased by each change to the output of `generate`."""

_CONSONANTS, _VOWELS = "bdgklmnt", "aeiou"
_SYLLABLES = tuple(c + v for c, v in product(_CONSONANTS, _VOWELS))
_SHARES = {"train": 0.6, "validation": 0.15, "test": 0.25}
_N_WORDS = 10
"""Words of each role."""
_N_LINES = 4
_TWO_COMMANDS = 0.5
"""Share of tasks with two commands."""
_GOES_ON = 0.5
"""Share of second actions that continue with the first one's file, where possible."""

_SHORT = tuple(action for action in ACTIONS if len(action.right) == 1)
_LONG = tuple(action for action in ACTIONS if len(action.right) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """An action with its names."""

    action: Action
    names: Names

    @property
    def instruction(self) -> str:
        return self._filled(self.action.words)

    @property
    def right(self) -> tuple[str, ...]:
        return tuple(map(self._filled, self.action.right))

    @property
    def wrong(self) -> tuple[str, ...]:
        return tuple(map(self._filled, self.action.wrong))

    def _filled(self, text: str) -> str:
        return text.format(f=self.names.f, g=self.names.g, w=self.names.w)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTask:
    """A task: its instruction, and the files before and after."""

    split: str
    deeds: tuple[Deed, ...]
    before: Mapping[str, str]
    """Files of the working directory by name."""
    after: Mapping[str, str]

    @property
    def instruction(self) -> str:
        return " Then: ".join(deed.instruction for deed in self.deeds)

    @property
    def commands(self) -> tuple[str, ...]:
        """The reference solution's commands, one per turn."""
        return tuple(command for deed in self.deeds for command in deed.right)


class Draw:
    """A sampler of one split's tasks. Call it with random numbers to draw a task.

    Args:
        seed: determines the words and the split's sentences.
    """

    def __init__(self, split: str, seed: int = 0) -> None:
        if split not in _SHARES:
            raise ValueError(f"split={split}: expected one of {', '.join(_SHARES)}")
        self._split, self._seed = split, seed
        words = ["".join(syllables) for syllables in product(_SYLLABLES, repeat=2)]
        random.Random(seed).shuffle(words)
        groups = [words[i : i + _N_WORDS] for i in range(0, 7 * _N_WORDS, _N_WORDS)]
        self._of_actions = groups[:3], groups[3:6]  # f, g and w of the first and of the second
        self._others = groups[6]

    def __call__(self, rng: random.Random) -> ShellTask:
        while True:
            task = self._task(rng)
            changes = task.after != task.before  # otherwise doing nothing would solve it
            if changes and all(self._split_of(deed) == self._split for deed in task.deeds):
                return task

    def _split_of(self, deed: Deed) -> str:
        number = random.Random(f"{self._seed}/{deed.instruction}").random()
        ends = accumulate(_SHARES.values())
        return next(name for name, end in zip(_SHARES, ends, strict=True) if number < end)

    def _task(self, rng: random.Random) -> ShellTask:
        left = rng.sample(self._others, _N_WORDS)
        deeds: list[Deed] = []
        before: Files = {left.pop(): f"{left.pop()}\n"}  # a file that must stay unchanged
        for action, groups in zip(_actions(rng), self._of_actions, strict=False):
            f, g, w = map(rng.choice, groups)
            earlier = deeds[-1] if deeds else None
            goes_on = earlier is not None and earlier.action.keeps and action.reads
            if goes_on and rng.random() < _GOES_ON:
                assert earlier is not None
                f, w = earlier.names.g, earlier.names.w
            elif action.reads:
                before[f] = _content(w, [left.pop() for _ in range(_N_LINES - 2)], rng)
            deeds.append(Deed(action=action, names=Names(f=f, g=g, w=w)))
        after = dict(before)
        for deed in deeds:
            after = deed.action.effect(after, deed.names)
        return ShellTask(split=self._split, deeds=tuple(deeds), before=before, after=after)


def generate(split: str, n: int, seed: int = 0) -> list[ShellTask]:
    """Generate `n` different tasks of a split, the same for the same seed; a larger `n` adds some."""
    draw, rng = Draw(split, seed), random.Random(f"{seed}/{split}")
    tasks: dict[str, ShellTask] = {}
    while len(tasks) < n:
        task = draw(rng)
        tasks.setdefault(task.instruction, task)
    return list(tasks.values())


def _actions(rng: random.Random) -> tuple[Action, ...]:
    if rng.random() >= _TWO_COMMANDS:
        return (rng.choice(_SHORT),)
    pairs = len(_SHORT)
    if rng.randrange(pairs + len(_LONG)) >= pairs:
        return (rng.choice(_LONG),)
    return rng.choice(_SHORT), rng.choice(_SHORT)


def _content(word: str, others: list[str], rng: random.Random) -> str:
    """Return unsorted lines with `word` twice, so that each mistake gives a wrong file."""
    while True:
        lines = [word, word, *others]
        rng.shuffle(lines)
        if sorted(lines) not in (lines, lines[::-1]):
            return "".join(f"{line}\n" for line in lines)
