"""`data sft-rows`: the choice of accepted programs as demonstrations, and its errors."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from coding_model_project import cli
from coding_model_project.data.problems import write_problems
from coding_model_project.evaluation.results import COMPLETIONS
from coding_model_project.types import Call, Problem, Test
from tests.synthetic_evaluations import write_samples

ADD = "def solve(x):\n    return x + {}\n"


def problem(n, split="train", source="mine"):
    return Problem(
        id=f"{source}/{n}",
        statement=f"Add {n}.",
        tests=(Test(input=Call(function="solve", args=(1,)), expected=1 + n),),
        gold=(ADD.format(n),),
        split=split,
    )


def write(folder, problems, samples):
    """An evaluation's folder: `samples` by problem, as (code, accepted, cut off)."""
    each = zip(problems, samples, strict=True)
    write_samples(folder, problems, ((one.id, *told) for one, several in each for told in several))


@pytest.fixture
def world(tmp_path):
    problems = [problem(0), problem(1), problem(2)]
    write_problems(tmp_path / "p.jsonl", problems)
    copies = [ADD.format(0), "def solve(y):  # the same\n    return y + 0\n"]
    longer = "def solve(x):\n    total = x\n    total += 0\n    return total\n"
    longest = "def solve(x):\n    total = x\n    total += 0\n    total += 0\n    return total\n"
    other = "solve = lambda value, zero=0: sum([value, zero, zero, zero, zero, zero, zero, zero])\n"
    first = [(code, True, False) for code in (longer, *copies, longest, other)]
    second = [("def solve(x): return 2", False, False), (ADD.format(1), True, True)]
    write(tmp_path / "ev", problems, [first, second, [(ADD.format(2), True, False)]])
    return tmp_path


def rows(world, capsys, *options, folders=("ev",)):
    command = ["data", "sft-rows", *(str(world / name) for name in folders)]
    code = cli.main(
        [*command, "--problems", f"{world}/p.jsonl", "--out", f"{world}/o.parquet", *options]
    )
    said = capsys.readouterr()
    if code:
        return code, said.err
    report = json.loads((world / "o.json").read_text())
    return pq.read_table(world / "o.parquet").to_pylist(), report


def shown(found, name="mine/0"):
    return [row["messages"][1]["content"] for row in found if row["extra_info"]["problem"] == name]


def test_distinct_accepted_programs_shortest_first(world, capsys):
    found, report = rows(world, capsys, "-n", "2")
    assert [len(code) for code in shown(found)] == sorted(map(len, shown(found)))
    assert shown(found)[0] == ADD.format(0)
    assert len(shown(found)) == 2
    assert found[0]["messages"][0] == {"role": "user", "content": "Add 0."}
    assert found[0]["extra_info"] == {"split": "train", "problem": "mine/0"}
    # of mine/1 the only accepted sample was cut off: it would teach not to end
    assert report["without"] == ["mine/1"]
    assert (report["duplicates"], report["over_limit"], report["kept"]) == (1, 2, 3)
    assert report["evaluations"][0]["cut_off"] == 1
    assert report["rows"][0] == ["mine/0", "ev/1"]


def test_a_random_choice_goes_by_the_seed(world, capsys):
    drawn = [
        shown(rows(world, capsys, "-n", "1", "--random", "--seed", str(seed))[0])[0]
        for seed in (0, 0, 1, 2, 3, 4, 5)
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_only_the_training_split_of_ones_own_file_trains(world, capsys):
    """A bank of problems may hold its validation and test problems, which one evaluation may cover."""
    mixed = [problem(0), problem(1, "val"), problem(2, "test"), problem(3, "test")]
    accepted = [[(ADD.format(n), True, False), (ADD.format(n), True, False)] for n in range(4)]
    write(world / "mixed", mixed, accepted)
    write(world / "held", mixed[1:], accepted[1:])
    write_problems(world / "p.jsonl", mixed)
    found, report = rows(world, capsys, folders=("mixed",))
    assert {row["extra_info"]["problem"] for row in found} == {"mine/0"}
    assert report["evaluations"][0]["held_out"] == {"validation": 2, "test": 4}
    assert (report["evaluations"][0]["problems"], report["evaluations"][0]["samples"]) == (1, 2)
    command = ["--problems", f"{world}/p.jsonl", "--out", f"{world}/o.parquet"]
    assert cli.main(["data", "sft-rows", f"{world}/mixed", *command]) == 0
    assert "left out, of test problems" in capsys.readouterr().out
    code, said = rows(world, capsys, folders=("held",))
    assert code == 2
    assert "all its problems are held out (splits validation, test)" in said


@pytest.mark.sandbox
def test_solutions_of_held_out_problems_do_not_train(world, capsys):
    write_problems(world / "p.jsonl", [problem(0), problem(1, "dev"), problem(2, "test")])
    options = ("--gold", "only", "--prompt", "bare")
    command = ["data", "sft-rows", "--problems", f"{world}/p.jsonl", "--out", f"{world}/o.parquet"]
    assert cli.main([*command, *options]) == 0
    said = "left out 2 gold solutions of held-out problems (validation 1, test 1)"
    assert said in capsys.readouterr().out
    found = pq.read_table(world / "o.parquet").to_pylist()
    assert {row["extra_info"]["problem"] for row in found} == {"mine/0"}


@pytest.mark.sandbox
def test_own_solutions_are_run_and_fill_the_gaps_only(world, capsys):
    wrong = problem(3)
    broken = [problem(0), problem(1), problem(2), replace(wrong, gold=("x",))]
    write_problems(world / "p.jsonl", broken)
    found, report = rows(world, capsys, "--gold", "missing")
    assert shown(found, "mine/1") == [ADD.format(1)]
    assert report["kept_gold"] == 1
    found, report = rows(world, capsys, "--gold", "only", "--prompt", "bare", folders=())
    assert {row["extra_info"]["problem"] for row in found} == {"mine/0", "mine/1", "mine/2"}
    assert report["gold_rejected"] == ["mine/3"]


def test_what_must_not_train_or_does_not_fit_is_refused_in_one_line(world, capsys):
    held_out = [problem(0, split="test", source="tinycode")]
    write(world / "test", held_out, [[(ADD.format(0), True, False)]])
    write_problems(world / "p.jsonl", [*held_out, problem(7)])
    code, said = rows(world, capsys, folders=("test",))
    assert (code, said.count("\n")) == (2, 1)
    assert "test only and must not train" in said
    code, said = rows(world, capsys)
    assert "the evaluated problem mine/0 is missing from --problems" in said
    changed = [replace(problem(n), statement="Other.") for n in range(3)]
    write_problems(world / "p.jsonl", changed)
    code, said = rows(world, capsys)
    assert "differ from --problems" in said
    failed = [problem(8)]
    write(world / "none", failed, [[("x", False, False)]])
    write_problems(world / "p.jsonl", failed)
    code, said = rows(world, capsys, folders=("none",))
    assert (code, said.count("\n")) == (2, 1)
    assert "none of 1 problems has an accepted sample" in said
    assert not (world / "o.parquet").exists()


def test_a_sample_whose_program_is_not_the_one_judged_is_refused(world, capsys):
    file = world / "ev" / COMPLETIONS
    file.write_text(file.read_text().replace("x + 2", "x + 3"))
    code, said = rows(world, capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert "differs from the judged one" in said
