"""Synthetic contest problems with a known meaning, so that copies can be planted.

A `Meaning` is rendered with a choice of words, phrasings, names and order. Two renderings of one meaning
are the same problem. Different meanings share boilerplate about input, output and bounds, as contest
problems do, and `sibling`s share their story too but ask for something else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from coding_model_project.types import Problem, Stdin, Test
from tests.tables import tables

WORDS = tables("made_words")
"""Words and sentences: "/" stands between two of one meaning."""

_LETTERS = "nmkpqrstuvwabcd"
_N_BOILERPLATE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The meaning of a problem: indices of groups of words, and numbers."""

    nouns: tuple[int, ...]
    adjectives: tuple[int, ...]
    verbs: tuple[int, ...]
    measure: int
    condition: int
    bound: int
    limit: int
    cases: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """The wording of a meaning."""

    word: int = 0
    """Index of the word in each group."""
    swapped: frozenset[int] = frozenset()
    """Groups, by their index modulo 100, that use the other word."""
    phrasing: int = 0
    name: str = "Vasya"
    letters: tuple[str, str] = ("n", "a")
    shuffled: bool = False


def meaning(rng: random.Random) -> Meaning:
    """Return a random problem that most likely does not exist yet."""
    cases = tuple(_case(rng) for _ in range(8))
    return Meaning(
        nouns=tuple(rng.sample(range(len(WORDS["nouns"])), 9)),
        adjectives=tuple(rng.sample(range(len(WORDS["adjectives"])), 5)),
        verbs=tuple(rng.sample(range(len(WORDS["verbs"])), 4)),
        measure=rng.randrange(len(WORDS["measures"])),
        condition=rng.randrange(len(WORDS["conditions"])),
        bound=10 ** rng.randint(2, 6),
        limit=10 ** rng.randint(3, 9),
        cases=cases,
    )


def sibling(original: Meaning, rng: random.Random) -> Meaning:
    """Return another problem that shares half of the story, as in one contest."""
    other = meaning(rng)
    return replace(
        other, nouns=(*original.nouns[:5], *other.nouns[5:]), adjectives=original.adjectives
    )


def rendering(rng: random.Random) -> Rendering:
    """Return a random wording."""
    first, second = rng.sample(_LETTERS, 2)
    return Rendering(
        word=rng.randrange(2),
        phrasing=rng.randrange(2),
        name=rng.choice(WORDS["names"]),
        letters=(first, second),
    )


def renamed(original: Rendering, rng: random.Random) -> Rendering:
    """Return the same words with another name and other letters."""
    other = rendering(rng)
    return replace(original, name=other.name, letters=other.letters)


def reworded(original: Rendering, rng: random.Random, share: float = 0.3) -> Rendering:
    """Return the same sentences with synonyms for a share of the words that have one."""
    swapped = frozenset(index for index in range(100) if rng.random() < share)
    return replace(renamed(original, rng), swapped=swapped)


def rearranged(original: Rendering, rng: random.Random) -> Rendering:
    """Return the same words in other sentences and another order."""
    other = renamed(original, rng)
    return replace(other, phrasing=1 - original.phrasing, shuffled=True)


def paraphrased(original: Rendering, rng: random.Random, share: float = 0.3) -> Rendering:
    """Return other sentences in another order, with synonyms for a share of the words."""
    other = rearranged(original, rng)
    return replace(other, swapped=reworded(original, rng, share).swapped)


def statement(what: Meaning, how: Rendering) -> str:
    """Return the problem's text."""
    words: dict[str, object] = {"name": how.name, "x": how.letters[0], "y": how.letters[1]}
    for letter, groups, chosen in (
        ("n", "nouns", what.nouns), ("a", "adjectives", what.adjectives), ("v", "verbs", what.verbs),
    ):  # fmt: skip
        for position, index in enumerate(chosen):
            words[f"{letter}{position}"] = _chosen(groups, index, how)
    words["m"] = _chosen("measures", what.measure, how)
    words["c"] = _chosen("conditions", what.condition, how)
    words |= {"bound": what.bound, "limit": what.limit}
    story = [sentence.split("/")[how.phrasing].format(**words) for sentence in WORDS["story"]]
    if how.shuffled:
        story.reverse()
    asked, given, printed = (
        WORDS[part].split("/")[how.phrasing].format(**words) for part in ("ask", "input", "output")
    )
    notes = " ".join(
        random.Random(what.limit + what.measure).sample(WORDS["boilerplate"], _N_BOILERPLATE)
    )
    return f"{' '.join(story)}\n\n{asked}\n\nInput\n\n{given}\n\nOutput\n\n{printed}\n\nNote\n\n{notes}\n"


def _chosen(kind: str, index: int, how: Rendering) -> str:
    return WORDS[kind][index].split("/")[how.word ^ (index % 100 in how.swapped)]


def problem(name: str, split: str, what: Meaning, text: str, *, tests: bool = True) -> Problem:
    """Return a problem with that text; without its own tests, only its words can match."""
    cases = what.cases if tests else tuple(_case(random.Random(f"{name}/{i}")) for i in range(8))
    return Problem(
        id=name,
        split=split,
        statement=text,
        tests=tuple(Test(input=Stdin(given), expected=expected) for given, expected in cases),
    )


def _case(rng: random.Random) -> tuple[str, str]:
    values = [rng.randrange(1000) for _ in range(rng.randint(2, 9))]
    return f"{len(values)}\n{' '.join(map(str, values))}\n", f"{rng.randrange(10_000)}\n"
