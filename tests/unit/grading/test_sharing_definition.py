"""Marking looks answers up in indexes; the definition, which searches all there was, marks the same."""

import random

import pytest

from coding_model_project.grading import sharing
from coding_model_project.grading.sharing import inputs_of
from coding_model_project.types import Call, Isolation, Stdin, Test


class Given:
    """The definition: all texts, values and words of a process, each searched from end to end."""

    def __init__(self):
        self.given, self.n_characters = [], 0

    def add(self, given):
        self.given.append(given)
        self.n_characters += len(" ".join(sharing._words(given))) + 2

    def holds(self, expected, is_guessed):
        if self.n_characters > sharing._MOST_CHARACTERS:
            return True
        if is_guessed(expected):
            return False
        words = " ".join(sharing._words(expected))
        if not is_guessed(words) and any(
            f" {words} " in f" {' '.join(sharing._words(one))} " for one in self.given
        ):
            return True
        inner = [value for one in self.given for value in sharing._inner_values(one)]
        if isinstance(expected, str | bytes):
            texts = [one for one in inner if type(one) is type(expected)]
            return any(expected.strip() in one for one in texts)
        others = [one for one in inner if not isinstance(one, str | bytes)]
        return sharing._key(expected) in set(map(sharing._key, others))


LEAVES = [0, 1, 3, 12, 17, -40, 10**30, True, None, 1.0, 12.5, 1e15, 2j, float("inf")]
TEXTS = [
    "",
    " ",
    "a",
    "ab",
    "abc",
    "cab",
    "ab ab",
    "12",
    "12.50",
    "a\0b",
    "0 1 2",
    "[12, 17]",
    "HeLLo",
]


def value(chance, depth=0):
    kind = chance.randrange(9 if depth < 3 else 4)
    some = [value(chance, depth + 1) for _ in range(chance.randrange(4))] if kind > 3 else []
    match kind:
        case 0 | 1:
            return chance.choice(LEAVES)
        case 2:
            return "".join(chance.choices(TEXTS, k=chance.randrange(1, 4)))
        case 3:
            return chance.choice(TEXTS).encode()
        case 4 | 5:
            return some
        case 6:
            return tuple(some)
        case 7:
            return frozenset(chance.sample(LEAVES, k=2))
        case _:
            return dict(zip(chance.sample(TEXTS, k=len(some)), some, strict=True))


def part_of(chance, given):
    """Something made of a value: itself, an item, a part of a text, the same in another order."""
    match given:
        case list() | tuple() if given:
            items = list(given)
            chance.shuffle(items)
            return chance.choice([given, items, given[: len(given) // 2 + 1], given[0], str(given)])
        case str() | bytes():
            start = chance.randrange(len(given) + 1)
            return given[start : start + chance.randrange(1, 6)]
        case _:
            return given


@pytest.mark.parametrize("seed", range(8))
def test_calls_are_marked_as_the_definition_marks_them(seed, monkeypatch):
    chance = random.Random(seed)
    tests = []
    for _ in range(400):
        args = tuple(value(chance) for _ in range(chance.randrange(1, 3)))
        answer = part_of(chance, chance.choice(tests).input.args) if tests else 1
        answer = part_of(chance, answer) if chance.random() < 0.5 else answer
        tests.append(Test(Call("f", args), expected=chance.choice([answer, value(chance)])))
    found = [one.apart for one in inputs_of(tests, Isolation.per_test)]
    monkeypatch.setattr(sharing, "_Given", Given)
    assert found == [one.apart for one in inputs_of(tests, Isolation.per_test)]
    assert 20 < sum(found) < 380


@pytest.mark.parametrize("seed", range(4))
def test_standard_inputs_are_marked_as_the_definition_marks_them(seed, monkeypatch):
    chance, words = (
        random.Random(seed),
        ["7", "12", "1000", "0.5", "0.50", "yes", "NO", "a,b", "x\0y"],
    )
    texts = [" ".join(chance.choices(words, k=chance.randrange(1, 9))) for _ in range(400)]
    tests = [
        Test(Stdin(text), expected=" ".join(chance.choices(words, k=chance.randrange(4))))
        for text in texts
    ]
    found = [one.apart for one in inputs_of(tests, Isolation.per_test)]
    monkeypatch.setattr(sharing, "_Given", Given)
    assert found == [one.apart for one in inputs_of(tests, Isolation.per_test)]
    assert 20 < sum(found) < 380
