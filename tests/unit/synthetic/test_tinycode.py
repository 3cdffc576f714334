"""The generated tasks keep their promises: distinct, disjoint, discriminating, the same everywhere."""

import contextlib
import io
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

from coding_model_project.data.loaders import load
from coding_model_project.grading.compare import same_output, same_value
from coding_model_project.synthetic.tinycode import (
    N_HIDDEN,
    N_PUBLIC,
    NoiseConfig,
    generate,
    noisy_solution,
    normalised,
    spoil,
)
from coding_model_project.synthetic.tinycode_families import MistakeKind, compositions
from coding_model_project.types import Call, Stdin
from tests.text_cases import sources

SOURCES = sources(__file__)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tinycode")]  # generated once

SPLITS = ("train", "validation", "test")
N_SAMPLED = 200
FINGERPRINT = SOURCES["fingerprint"]


@pytest.fixture(scope="session")
def tinycode():
    return generate()


@pytest.fixture(scope="session")
def shapes(tinycode):
    """Each split's gold programs, constants normalised."""
    found = defaultdict(list)
    for task in tinycode.tasks:
        found[task.problem.split].append(normalised(task.problem.gold[0]))
    return found


def passes_hidden(problem, source):
    """Run one of our own programs, which all terminate."""
    return all(_passes(source, test) for test in problem.hidden_tests)


def _passes(source, test):
    try:
        if isinstance(test.input, Stdin):
            text, printed = test.input.text, io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(source, {"input": lambda: text.rstrip("\n")})
            return same_output(test.expected, printed.getvalue(), "tokens")
        names = {}
        exec(source, names)
        return same_value(test.expected, names[test.input.function](*test.input.args))
    except Exception:  # noqa: BLE001 - a known-bad program may raise anything
        return False


def test_the_functions_come_with_asserts_too(tinycode):
    """The assertions, in MBPP's form, tell apart the same programs as the calls."""
    members = load("tinycode_asserts_validation").problems
    plain = {problem.id: problem for problem in tinycode.problems("validation")}
    assert len(members) == sum(problem.entry_point is not None for problem in plain.values())
    for problem in members[:N_SAMPLED]:
        assert problem.statement == plain[problem.id].statement
        assert [test.public for test in problem.tests] == [
            t.public for t in plain[problem.id].tests
        ]
        assert holds(problem.gold[0], problem.tests)
        assert not any(holds(bad, problem.hidden_tests) for bad in problem.bad)


def holds(source, tests):
    names = {}
    try:
        exec(source, names)
        for test in tests:
            exec(test.input.source, names)
    except Exception:  # noqa: BLE001 - a known-bad program may raise anything
        return False
    return True


def test_thousands_of_golds_are_distinct_beyond_their_constants(shapes):
    everything = [shape for split in shapes.values() for shape in split]
    assert len(everything) == len(set(everything)) >= 5_000


def test_splits_are_disjoint_by_composition_and_by_program(tinycode, shapes):
    keys = {name: {t.composition.key for t in tinycode.split(name)} for name in SPLITS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not keys[one] & keys[other]
        assert not set(shapes[one]) & set(shapes[other])
    assert len(keys["test"]) == 400
    assert len(keys["validation"]) == 400


def test_every_part_occurs_in_train(tinycode):
    def parts(compositions):
        return {
            (c.family, slot, part.key) for c in compositions for slot, part in enumerate(c.parts)
        }

    assert parts(t.composition for t in tinycode.split("train")) == parts(compositions())


def test_families_levels_and_forms(tinycode):
    families = Counter(task.composition.family for task in tinycode.tasks)
    assert len(families) >= 5
    assert min(families.values()) >= 300
    for split in SPLITS:
        assert {p.difficulty for p in tinycode.problems(split)} == {1, 2, 3, 4, 5}
        assert {p.tags[0] for p in tinycode.problems(split)} == set(families)
    stdin_share = sum(task.uses_stdin for task in tinycode.tasks) / len(tinycode.tasks)
    assert stdin_share == pytest.approx(0.25, abs=0.03)


def test_every_problem_is_complete(tinycode):
    for number, task in enumerate(tinycode.tasks):
        problem = task.problem
        assert len(problem.public_tests) == N_PUBLIC == 3
        assert len(problem.hidden_tests) == N_HIDDEN == 8
        assert len({repr(test.input) for test in problem.tests}) == 11, "a test is repeated"
        assert len(problem.gold) == 1
        assert len(problem.bad) >= 2
        assert problem.statement in task.statements
        assert len(set(task.statements)) == 3
        kind = Stdin if task.uses_stdin else Call
        assert all(isinstance(test.input, kind) for test in problem.tests), number
    assert len({p.id for s in SPLITS for p in tinycode.problems(s)}) == len(tinycode.tasks)


def test_gold_passes_and_known_bad_fails(tinycode):
    for task in random.Random(1).sample(tinycode.tasks, N_SAMPLED):
        problem = task.problem
        assert passes_hidden(problem, problem.gold[0]), problem.gold[0]
        for source in problem.bad:
            assert not passes_hidden(problem, source), source


def test_hard_parts_keep_out_of_the_easy_levels(tinycode):
    for task in tinycode.tasks:
        if task.problem.difficulty <= 2:
            assert all(part.hard < 2 for part in task.composition.parts)


def test_the_same_in_processes_of_different_hash_seeds():
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "4321")]
    command = [sys.executable, "-c", FINGERPRINT]
    one, other = (subprocess.check_output(command, env=env) for env in environments)
    assert one == other


# ── noise ─────────────────────────────────────────────────────────────────────────────────────────


def test_part_mistakes_are_made_as_often_as_configured(tinycode):
    """For tasks with exactly one fallible part, whose body tells whether its mistake was made."""
    noise, rng = NoiseConfig(whole={}), random.Random(2)
    made = defaultdict(list)
    for task in tinycode.tasks:
        fallible = [part for part in task.composition.parts if part.mistake]
        if len(fallible) == 1:
            kind = fallible[0].mistake.kind
            made[kind] += [noisy_solution(task, rng, noise) != task.problem.gold[0]]
    for kind, outcomes in made.items():
        if len(outcomes) >= 100:
            assert sum(outcomes) / len(outcomes) == pytest.approx(noise.parts[kind], abs=0.15), kind
    assert any(len(outcomes) >= 100 for outcomes in made.values())


def test_a_fifth_to_a_third_of_the_corpus_is_right(tinycode):
    rng, noise = random.Random(3), NoiseConfig()
    right = [noisy_solution(t, rng, noise) == t.problem.gold[0] for t in tinycode.tasks]
    assert 0.18 <= sum(right) / len(right) <= 0.33


def test_without_noise_the_corpus_is_the_gold(tinycode):
    noise, rng = (
        NoiseConfig(parts=dict.fromkeys(NoiseConfig().parts, 0.0), whole={}),
        random.Random(4),
    )
    for task in tinycode.tasks[:N_SAMPLED]:
        assert noisy_solution(task, rng, noise) == task.problem.gold[0]


@pytest.mark.parametrize("kind", NoiseConfig().whole)
def test_spoilt_programs_fail(tinycode, kind):
    rng = random.Random(5)
    for task in tinycode.tasks[:N_SAMPLED]:
        source = spoil(task.problem.gold[0], kind, rng)
        if kind is MistakeKind.syntax:
            with pytest.raises(SyntaxError):
                compile(source, "solution", "exec")
        else:
            compile(source, "solution", "exec")
            endless = kind is MistakeKind.infinite_loop
            assert (
                "while True: pass" in source if endless else not passes_hidden(task.problem, source)
            )
