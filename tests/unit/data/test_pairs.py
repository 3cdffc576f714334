"""Preference pairs, and the report on samples and problems without one."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coding_model_project.cli import main
from coding_model_project.data.governance import refuse_test_only
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.data.training.pairs import (
    CONTRASTS,
    Controls,
    Similarity,
    balanced,
    bias_report,
    split,
)
from coding_model_project.data.training.pairs import make_pairs as make_pairs_of
from coding_model_project.data.training.samples import Sample, normal_form
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.results import COMPLETIONS
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import ErrorType, Problem
from tests.synthetic_evaluations import write_samples
from tests.tables import tables

CASES = tables("data")

BARE = PromptStyle.bare
WRONG = ErrorType.wrong_answer


def problem(number: int = 0, *, split: str = "train", source: str = "mine", gold=()) -> Problem:
    return Problem(
        id=f"{source}/{number}", split=split, statement=f"task {number}", tests=(), gold=gold
    )


def program(number: int, length: int = 0) -> str:
    return f"def solve(x):\n    return x + {number}{' + 0' * length}\n"


def candidate(code: str, error: ErrorType | None = None) -> Sample:
    return Sample(
        problem=problem(), completion=code, code=code, error=error, tokens=len(code), origin="eval"
    )


def judged(*candidates: Sample, of: Problem | None = None) -> tuple[Problem, list[Sample]]:
    of = of or problem()
    return of, [replace(one, problem=of) for one in candidates]


def make_pairs(world, controls, style):
    samples = [one for _, several in world for one in several]
    return make_pairs_of(samples, [of for of, _ in world], controls, style)


candidates = st.lists(
    st.builds(
        lambda number, length, error: candidate(program(number, length), error),
        st.integers(0, 6),
        st.integers(0, 8),
        st.sampled_from([None, None, *CONTRASTS, ErrorType.no_code]),
    ),
    max_size=8,
)
worlds = st.lists(candidates, max_size=6).map(
    lambda groups: [
        judged(*group, of=problem(number, gold=(program(99),)))
        for number, group in enumerate(groups)
    ]
)
controls = st.builds(
    Controls,
    contrasts=st.lists(st.sampled_from(CONTRASTS), min_size=1, unique=True).map(tuple),
    per_problem=st.integers(1, 5),
    max_length_ratio=st.floats(1, 3),
    balance_length=st.booleans(),
    similarity=st.sampled_from(Similarity),
    gold=st.booleans(),
    seed=st.integers(0, 3),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds, controls)
def test_every_pair_is_what_was_asked_for(world, asked):
    try:
        paired = make_pairs(world, asked, BARE)
    except ConfigError as error:
        assert str(error).startswith("no pair can be made")
        return
    assert paired.pairs == make_pairs(world, asked, BARE).pairs  # the same seed, the same pairs
    by_id = {of.id: samples for of, samples in world}
    counts: dict[str, int] = {}
    for pair in paired.pairs:
        samples = by_id[pair.problem.id]
        assert pair.rejected in samples
        assert pair.contrast in asked.contrasts
        if pair.chosen.is_gold:
            assert asked.gold
            assert not any(one.error is None for one in samples)
        else:
            assert pair.chosen in samples
            assert pair.chosen.error is None
        chosen, rejected = pair.chosen.completion, pair.rejected.completion
        assert normal_form(chosen) != normal_form(rejected)
        ratio = max(len(chosen), len(rejected)) / min(len(chosen), len(rejected))
        assert ratio <= asked.max_length_ratio + 1e-9
        assert 0 <= pair.similarity <= 1
        counts[pair.problem.id] = counts.get(pair.problem.id, 0) + 1
    assert max(counts.values()) <= asked.per_problem
    sides = {(normal_form(p.chosen.completion), normal_form(p.rejected.completion), p.problem.id)
             for p in paired.pairs}  # fmt: skip
    assert len(sides) == len(paired.pairs)
    if asked.balance_length:
        longer = sum(pair.log_ratio > 0 for pair in paired.pairs)
        assert longer == sum(pair.log_ratio < 0 for pair in paired.pairs)
    report = bias_report(paired)
    n_without = sum(found["count"] for found in report["problems_without"].values())
    if not asked.balance_length:
        assert report["problems"] + n_without == len(world)
    assert sum(row["pairs"] for row in report["contrasts"].values()) == len(paired.pairs)


def test_the_nearest_failing_program_is_rejected():
    near, far = "def solve(x):\n    return x + 2\n", "print(sum(map(int, [1, 2, 3])))\n"
    group = judged(candidate(program(1)), candidate(far, WRONG), candidate(near, WRONG))
    (pair,) = make_pairs([group], Controls(per_problem=1), BARE).pairs
    assert pair.rejected.completion == near


def test_contrasts_and_programs_take_turns():
    errors = (WRONG, WRONG, ErrorType.runtime_error, ErrorType.timeout)
    failing = [candidate(program(n), error) for n, error in enumerate(errors)]
    pairs = make_pairs(
        [judged(candidate(program(8)), *failing)], Controls(per_problem=3), BARE
    ).pairs
    assert {pair.contrast for pair in pairs} == set(errors)


def test_a_program_that_differs_in_comments_and_names_alone_is_the_same():
    group = judged(
        candidate(program(1)),
        candidate("# by hand\n" + program(1).replace("x", "value")),
        candidate(program(2), WRONG),
        candidate("def solve(x):\n    return (x + 2)  # off by one\n", WRONG),
    )
    paired = make_pairs([group], Controls(per_problem=9), BARE)
    assert len(paired.pairs) == 1
    assert paired.left_out == {"samples that repeat a program": 2}


def test_what_is_judged_now_so_now_so_is_in_no_pair():
    flaky = [candidate(program(1)), candidate(program(1), WRONG)]
    with pytest.raises(ConfigError, match="1 × no sample that can be used"):
        make_pairs([judged(*flaky)], Controls(), BARE)


def test_balancing_drops_the_most_uneven_pairs_of_the_longer_side():
    world = [
        judged(candidate(program(1, long)), candidate(program(2, short), WRONG), of=problem(n))
        for n, (long, short) in enumerate([(9, 0), (4, 0), (2, 0), (0, 2)])
    ]
    pairs = make_pairs(world, Controls(max_length_ratio=9), BARE).pairs
    assert [pair.problem.id for pair in balanced(pairs)] == ["mine/2", "mine/3"]


def test_test_only_data_is_refused():
    held_out = problem(split="test", source="tinycode")
    group = judged(candidate(program(1)), candidate(program(2), WRONG), of=held_out)
    with pytest.raises(ConfigError, match="tinycode_test is test only"):
        make_pairs([group], Controls(), BARE)


def test_validation_pairs_are_of_other_problems():
    world = [
        judged(candidate(program(1)), candidate(program(2), WRONG), of=problem(n))
        for n in range(10)
    ]
    pairs = make_pairs(world, Controls(), BARE).pairs
    train, held_out = split(pairs, 0.2, seed=0)
    assert (len(train), len(held_out)) == (8, 2)
    assert not {p.problem.id for p in train} & {p.problem.id for p in held_out}
    with pytest.raises(ConfigError, match="--validation"):
        split(pairs, 0.01, seed=0)


def write_folder(folder, samples, prompt="bare"):
    """An evaluation whose samples are (problem, completion, outcome), of problems beside it."""
    known = read_problems(folder.parent / "p.jsonl")
    told = [(*one[:3], one[3:] == ("cut",)) for one in samples]
    return write_samples(folder, known, told, prompt=prompt)


@pytest.fixture
def world(tmp_path):
    write_problems(tmp_path / "p.jsonl", [problem(n, gold=(program(5),)) for n in range(5)])
    samples = [
        ("mine/0", program(1), True),
        ("mine/0", program(2), "wrong_answer"),
        ("mine/0", program(3), None),
        ("mine/0", "def solve(x:", "syntax_error", "cut"),
        ("mine/1", program(1), True),
        ("mine/2", program(2), "memory_limit"),
        ("mine/3", program(3), None),
    ]
    return write_folder(tmp_path / "eval", samples)


def pairs(world, *more):
    given = [str(world), "--problems", str(world.parent / "p.jsonl")]
    out = ["--out", str(world.parent / "pairs.parquet"), "--validation", "0"]
    return main(["data", "pairs", *given, *out, *more])


def test_the_command_writes_pairs_and_a_report(world, capsys):
    assert pairs(world) == 0
    (row,) = pq.read_table(world.parent / "pairs.parquet").to_pylist()
    assert row["prompt"] == [{"role": "user", "content": "task 0"}]
    assert (row["chosen"], row["rejected"]) == (program(1), program(2))
    assert (row["problem"], row["contrast"], row["data_source"]) == (
        "mine/0", "wrong_answer", "mine",
    )  # fmt: skip
    refuse_test_only(world.parent / "pairs.parquet")
    report = json.loads((world.parent / "pairs.json").read_text())
    assert report["problems_without"] == {
        "no failing sample": {"count": 1, "ids": ["mine/1"]},
        "no accepted sample": {"count": 1, "ids": ["mine/2"]},
        "no sample that can be used": {"count": 1, "ids": ["mine/3"]},
    }
    assert report["left_out"] == {"ungradable samples": 2, "samples cut off by the token limit": 1}
    assert report["all"]["tokens"] == {"chosen": 7, "rejected": 7}
    printed = capsys.readouterr().out
    assert re.search(r"wrong_answer +1 +0 +0\.\d+", printed)
    assert "1 problems: no failing sample (mine/1)" in printed
    assert json.loads(printed.splitlines()[-1])["pairs"] == 1


def test_held_out_problems_of_ones_own_file_give_no_pairs(tmp_path, capsys):
    splits = ("train", "val", "test", "test")
    write_problems(tmp_path / "p.jsonl", [problem(n, split=s) for n, s in enumerate(splits)])
    samples = [
        (f"mine/{n}", program(1 + wrong), not wrong) for n in range(4) for wrong in (False, True)
    ]
    write_folder(tmp_path / "eval", samples)
    assert pairs(tmp_path / "eval") == 0
    (row,) = pq.read_table(tmp_path / "pairs.parquet").to_pylist()
    assert row["problem"] == "mine/0"
    left_out = {"samples of validation problems": 2, "samples of test problems": 4}
    assert json.loads((tmp_path / "pairs.json").read_text())["left_out"].items() >= left_out.items()
    assert "left out: 4 samples of test problems" in capsys.readouterr().out


def test_gold_stands_in_where_nothing_was_accepted(world):
    assert pairs(world, "--gold", "--contrasts", "runtime_error") == 0
    (row,) = pq.read_table(world.parent / "pairs.parquet").to_pylist()
    assert (row["problem"], row["chosen_from"], row["chosen"]) == ("mine/2", "gold", program(5))
    assert row["contrast"] == "runtime_error"  # the group of memory_limit


@pytest.mark.parametrize(("more", "says"), CASES["bad_input_is_one_line"])
def test_bad_input_is_one_line(world, capsys, more, says):
    assert pairs(world, *more) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_evaluations_that_do_not_fit_are_one_line(world, capsys):
    other = write_folder(world.parent / "other", [("mine/0", "x", True)], prompt="fenced")
    stranger = write_folder(world.parent / "stranger", [("mine/77", "x", True)])
    assert pairs(world, str(other)) == 2
    assert "prompt=bare and" in capsys.readouterr().err
    assert pairs(stranger) == 2
    assert "the evaluated problem mine/77 is missing from --problems" in capsys.readouterr().err
    changed = [replace(problem(n), statement="Another task.") for n in range(5)]
    write_problems(world.parent / "p.jsonl", changed)
    assert pairs(world) == 2
    assert "differ from --problems" in capsys.readouterr().err
    write_problems(world.parent / "p.jsonl", [problem(n) for n in range(5)])
    (world / COMPLETIONS).unlink()
    assert pairs(world) == 2
    assert "completions.jsonl: no such file" in capsys.readouterr().err


# ── equivalent programs ────────────────────────────────────────────────────────────────────────────


COPIES = tables("copies")

ADD = "def f(a):\n    return a + 1"


@pytest.mark.parametrize(("one", "other"), COPIES["same"])
def test_names_of_variables_comments_and_layout_do_not_tell_programs_apart(one, other):
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(("one", "other"), COPIES["different"])
def test_what_may_do_something_else_is_another_program(one, other):
    assert normal_form(one) != normal_form(other)


def test_code_that_does_not_parse_and_other_languages_differ_in_more_than_line_ends():
    assert normal_form("def f(:\n\n    x  ") == normal_form("def f(:\n    x")
    assert normal_form("int x;  \n\nint y;", "cpp") == normal_form("int x;\nint y;", "cpp")
    assert normal_form('puts("a b");', "cpp") != normal_form('puts("a  b");', "cpp")
