"""`eval compare`: what it says of evaluations whose outcomes are known, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coding_model_project import cli
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison import at_budgets
from coding_model_project.evaluation.gain import GAIN, gain, say_gain
from coding_model_project.evaluation.intervals import rate_interval
from coding_model_project.evaluation.results import RESULTS, RUN_INFO, read_evaluation
from coding_model_project.runs.rollouts import Rollout, RolloutWriter
from tests.pages import packed
from tests.synthetic_evaluations import result, write_evaluation, write_results
from tests.synthetic_runs import rollout, write_run
from tests.tables import tables

CASES = tables("evaluation")

N = 40


def outcomes(solved, n=N):
    return {f"toy/{i}": [i in solved] for i in range(n)}


@pytest.fixture
def runs(tmp_path):
    """`before` solves 0-9, `after` 2-25."""
    write_evaluation(tmp_path / "before", outcomes(range(10)), model="sft")
    write_evaluation(tmp_path / "after", outcomes(range(2, 26)), model="grpo")
    return tmp_path


def compare(capsys, *words):
    code = cli.main(["eval", "compare", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def pairs(capsys, *words):
    code, out, err = compare(capsys, *words, "--json")
    assert code == 0, err
    return json.loads(out)["pairs"]


def test_what_changed_is_listed_and_tested(runs, capsys):
    (pair,) = pairs(capsys, runs / "before", runs / "after")
    assert pair["gained"] == [f"toy/{i}" for i in range(10, 26)]
    assert pair["lost"] == ["toy/0", "toy/1"]
    assert pair["delta"] == pytest.approx(14 / N)
    assert pair["low"] < pair["delta"] < pair["high"]
    assert pair["mcnemar_p"] == pytest.approx(0.0013, abs=1e-4)
    assert pair["p"] == pair["permutation_p"] == pytest.approx(0.0013, abs=2e-3)
    assert pair["first_cost"] == {
        "samples": N, "tokens": 10.0 * N, "judge_s": 0.5 * N, "truncated": 0, "ungradable": 0,
    }  # fmt: skip
    code, out, _ = compare(capsys, runs / "before", f"grpo={runs / 'after'}")
    assert code == 0
    assert "+35.0%" in out
    assert "toy, grpo: 2 lost: toy/0, toy/1" in out


def test_error_types_stand_side_by_side_with_their_intervals(tmp_path, capsys):
    before = {f"toy/{n}": ["syntax_error", "memory_limit" if n % 2 else True] for n in range(20)}
    after = {f"toy/{n}": ["syntax_error" if n < 5 else True, True] for n in range(20)}
    folders = [
        write_evaluation(tmp_path / name, outcomes)
        for name, outcomes in (("base", before), ("sft", after))
    ]
    (pair,) = pairs(capsys, *folders)
    syntax, runtime = pair["errors"]
    assert (syntax["error"], runtime["error"]) == ("syntax_error", "runtime_error")
    bounds = dict(zip(("low", "high"), rate_interval([0.5] * 20), strict=True))
    assert syntax["first"] == {"mean": 0.5, **bounds}
    assert (syntax["second"]["mean"], syntax["delta"]["mean"]) == (0.125, -0.375)
    assert syntax["delta"]["low"] < -0.375 < syntax["delta"]["high"] < 0
    assert (runtime["second"]["mean"], runtime["delta"]["mean"]) == (0.0, -0.25)
    assert runtime["second"]["high"] > 0.1, "none of 20 is not never"
    _, out, _ = compare(capsys, *folders)
    assert "syntax_error 50.0% (41.0–59.0) 12.5% (" in " ".join(out.split())


def test_only_problems_that_all_have_are_compared_and_the_rest_is_counted(runs, capsys):
    short = outcomes(range(2, 26), n=30)
    short |= {"toy/3": [None], "toy/extra": [True]}  # one that could not be graded is no failure
    write_evaluation(runs / "short", short)
    (pair,) = pairs(capsys, runs / "before", runs / "short")
    assert (pair["n_problems"], pair["not_shared"]) == (29, 12)
    assert "toy/3" not in pair["lost"]
    assert pair["second_cost"]["ungradable"] == 1
    _, out, _ = compare(capsys, runs / "before", runs / "short")
    assert "12 problems excluded" in out


def test_several_comparisons_are_corrected_together(runs, capsys):
    write_evaluation(runs / "same", outcomes(range(10)))
    after, same = pairs(capsys, *(runs / name for name in ("before", "after", "same")))
    assert after["corrected_p"] == pytest.approx(2 * after["p"])
    assert same["p"] == same["corrected_p"] == same["mcnemar_p"] == 1.0
    assert (same["delta"], same["gained"], same["lost"]) == (0, [], [])
    assert after["least_changes"] == 7
    assert same["detectable"] == 7 / N, "that nothing changed does not mean that all would show"


def seeds(folder, name, shift, n_seeds=4, spread=0.04):
    rng = np.random.default_rng(len(name))
    chance = np.random.default_rng(0).random(60)
    for seed in range(n_seeds):
        p = chance + shift + rng.normal(0, spread)
        samples = {f"toy/{i}": [bool(x) for x in rng.random(4) < q] for i, q in enumerate(p)}
        write_evaluation(folder / f"{name}_seed{seed}", samples, model=f"{name}{seed}", seed=seed)
    return f"{folder / name}_seed*"


def test_over_seeds_the_p_value_and_interval_speak_of_other_seeds(tmp_path, capsys):
    sides = seeds(tmp_path, "old", 0.0), seeds(tmp_path, "newer", 0.2)
    (pair,) = pairs(capsys, *sides)
    by_seed = pair["second_score"]["by_seed"]
    assert len(by_seed) == 4
    assert pair["second_score"]["std"] == pytest.approx(np.std(by_seed, ddof=1))
    assert pair["permutation_p"] < pair["seeds_p"] == pair["p"] < 0.05
    (single,) = pairs(capsys, tmp_path / "old_seed0", tmp_path / "newer_seed0")
    assert single["seeds_p"] is None
    _, out, _ = compare(capsys, *sides)
    assert "old_seed" in out
    assert f"± {pair['second_score']['std']:.1%}" in out
    _, out, _ = compare(capsys, sides[0], tmp_path / "newer_seed0")
    assert "newer_seed0: one seed each" in " ".join(out.split())


def test_copies_are_told_from_seeds(runs, capsys):
    write_evaluation(runs / "again", outcomes(range(10)), model="sft")
    _, out, _ = compare(capsys, f"twice={runs / 'before'},{runs / 'again'}", runs / "after")
    assert "so they are not independent" in out


def test_pass_at_k_needs_k_graded_samples(tmp_path, capsys):
    samples = {"toy/0": [True, False, False, False], "toy/1": [False] * 4, "toy/2": [True, None]}
    write_evaluation(tmp_path / "a", samples)
    write_evaluation(tmp_path / "b", samples | {"toy/1": [True] * 4})
    (pair,) = pairs(capsys, tmp_path / "a", tmp_path / "b", "--k", 2)
    assert (pair["n_problems"], pair["not_shared"]) == (2, 1)
    assert pair["first_score"]["mean"] == pytest.approx(0.25)  # 1 − C(3,2)/C(4,2), halved
    code, _, err = compare(capsys, tmp_path / "a", tmp_path / "b", "--k", 5)
    assert code == 2
    assert "smaller --k" in err


def test_other_protocols_are_refused_by_what_differs(runs, capsys):
    write_evaluation(runs / "hot", outcomes([1]), protocol="sampled", sampling={"temperature": 1})
    code, _, err = compare(capsys, runs / "before", runs / "hot")
    assert code == 2
    assert "protocol: greedy → sampled" in err
    assert "sampling.temperature: absent → 1" in err
    info = json.loads((runs / "before" / RUN_INFO).read_text())
    info["protocol"]["hash"], info["datasets"]["toy"]["version"] = "new", "2"
    write_evaluation(runs / "new", outcomes([1]))
    (runs / "new" / RUN_INFO).write_text(json.dumps(info))
    assert "data.toy.version: 1 → 2" in compare(capsys, runs / "before", runs / "new")[2]
    code, _, err = compare(capsys, runs / "before", runs / "hot", "--force")
    assert code == 0
    assert "were evaluated differently" in err


def test_the_plot_is_one_page(runs, capsys):
    page = runs / "new" / "plot.html"
    assert compare(capsys, runs / "before", runs / "after", "--plot", page)[0] == 0
    text = page.read_text()
    assert "toy: after − before +35.0%" in text
    assert "script-src 'sha256-" in text
    figures = packed(text, "figures-data")
    assert {trace["name"]: trace["y"] for trace in figures["scores"]["data"]} == {
        "before": [10 / 40],
        "after": [24 / 40],
    }
    [difference] = figures["differences"]["data"]
    assert difference["x"] == [pytest.approx(14 / 40)]
    assert 0 < difference["low"][0] < difference["x"][0]
    code, _, err = compare(capsys, runs / "before", runs / "after", "--plot", runs / "plot.png")
    assert code == 2
    assert ".html" in err


@pytest.mark.parametrize(("words", "code", "said"), CASES["bad_input_is_named"])
def test_bad_input_is_named(runs, capsys, words, code, said):
    write_evaluation(runs / "x" / "before", outcomes([]))
    write_evaluation(runs / "other", {"other": outcomes([])})
    results = write_evaluation(runs / "cut", outcomes([])) / RESULTS
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join([*lines[:2], lines[2][:20] + b"\n", *lines[3:]]))
    twice = write_evaluation(runs / "twice", outcomes([])) / RESULTS
    twice.write_bytes(twice.read_bytes() + twice.read_bytes().splitlines(keepends=True)[1])
    (write_evaluation(runs / "no_results", outcomes([])) / RESULTS).unlink()
    damaged = words[-1] in ("cut", "twice", "no_results")
    got, _, err = compare(capsys, *(runs / word for word in words), *(["--force"] * damaged))
    assert (got, said in err) == (code, True), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_an_evaluation_that_was_cut_short_is_named(runs, capsys):
    write_run(runs / "after", recipe="baseline", exit_code=130)
    _, _, err = compare(capsys, runs / "before", runs / "after")
    assert f"{runs / 'after'} ended early (interrupted)" in err


def test_a_folder_with_an_equals_sign_is_a_folder(runs, capsys):
    write_evaluation(runs / "coding.seed=1", outcomes([1]))
    (pair,) = pairs(capsys, runs / "before", runs / "coding.seed=1")
    assert pair["second"] == "coding.seed=1"


N_PROBLEMS = 20


def write(folder, samples):
    """An evaluation whose problems all have these samples: (passed, tokens, repairs)."""
    results = (
        result(
            "toy", f"toy/{problem}", number, passed, tokens=tokens, repairs=repairs,
            repair_s=0.1 * repairs, program=f"{problem}/{number}",
        )
        for problem in range(N_PROBLEMS)
        for number, (passed, tokens, repairs) in enumerate(samples)
    )  # fmt: skip
    return write_results(write_evaluation(folder, {"toy": {}}), results)


def test_both_are_held_against_each_other_at_the_same_cost(tmp_path, capsys):
    independent = write(tmp_path / "independent", [(True, 10, 0)] + [(False, 10, 0)] * 3)
    repaired = write(tmp_path / "repaired", [(True, 20, 1), (True, 20, 1)])
    points = at_budgets(read_evaluation(independent), read_evaluation(repaired))
    tokens = [point for point in points if point.kind == "tokens"]
    cheapest, last = tokens[0], tokens[-1]
    assert cheapest.budget == 10
    assert cheapest.first == pytest.approx(1 / 4, abs=0.05)  # one sample of four, in any order
    assert cheapest.second == 0.0  # a repair is not to be had for the price of one attempt
    twenty = next(point for point in tokens if point.budget >= 20)
    assert twenty.second == 1.0
    assert twenty.delta == pytest.approx(1.0 - twenty.first)
    assert twenty.low <= twenty.delta <= twenty.high
    assert twenty.p < 0.01
    assert last.budget == 40  # what every problem of both has spent in all
    assert cli.main(["eval", "budget", str(independent), str(repaired)]) == 0
    assert "40 tokens" in capsys.readouterr().out


def test_nothing_in_common_is_said(tmp_path):
    first = read_evaluation(write(tmp_path / "a", [(True, 1, 0)]))
    empty = read_evaluation(write(tmp_path / "b", []))
    with pytest.raises(ConfigError, match="no graded problem in common"):
        at_budgets(first, empty)


# ── a training's gain ──────────────────────────────────────────────────────────────────────────────


def validated(step: int, problem: int, passed: bool, split: str = "validation") -> Rollout:
    return Rollout(
        step=step, attempt=1, split=split, problem=f"mine/{problem}", sample="0", prompt="",
        completion="", tokens=1, reward=float(passed), reward_parts={},
        verdict={"error": None if passed else "wrong_answer"}, generated_at=0.0, graded_at=0.0,
    )  # fmt: skip


def test_the_gain_is_of_the_problems_that_both_validations_judged(tmp_path):
    writer = RolloutWriter(tmp_path)
    writer.write([validated(0, n, n < 10) for n in range(40)])
    writer.write([validated(5, n, True, "train") for n in range(40)])
    writer.write([validated(10, n, n < 30) for n in range(1, 40)])  # an outage took the first
    writer.close()
    lines: list[str] = []
    say_gain(tmp_path, lines.append)
    found = json.loads((tmp_path / GAIN).read_text())
    assert (found["before"]["step"], found["after"]["step"]) == (0, 10)
    assert found["test"]["n_problems"] == 39
    assert round(found["test"]["delta"], 6) == round(20 / 39, 6)
    assert found["test"]["p_value"] < 0.001 and found["test"]["low"] > 0
    assert lines[0].startswith("validation on 39 problems: step 0: 23.1% (")


def test_one_validation_is_no_gain(tmp_path):
    writer = RolloutWriter(tmp_path)
    writer.write([validated(0, 1, True)])
    writer.close()
    assert gain(tmp_path) is None


SCRIPT = Path(__file__).parents[3] / "src" / "harbor_gains.py"


def validated_run(folder: Path, seed: int, solved_before: int, solved_after: int, **more) -> None:
    failed = {"error": "wrong_answer"}
    rows = [
        rollout(step=step, split="validation", problem=f"p/{n}", verdict={} if n < k else failed)
        for step, k in ((0, solved_before), (10, solved_after))
        for n in range(40)
    ]
    write_run(folder / f"seed_{seed}", recipe="harbor", rollouts=rows, seed=seed, **more)


@pytest.mark.slow
def test_gains_over_seeds_replace_what_was_below_the_heading(tmp_path):
    for seed, after in ((1, 20), (2, 24), (3, 28)):
        validated_run(tmp_path / "block", seed, 10, after)
    validated_run(tmp_path / "block", 4, 10, 40, exit_code=None)
    page = tmp_path / "page.md"
    page.write_text("# Claim\n\nSettled.\n\n## Result\n\nold\n")
    command = [sys.executable, SCRIPT, page, f"block={tmp_path}/block", f"tools={tmp_path}/no"]
    subprocess.run(command, check=True)
    text = page.read_text()
    assert text.startswith("# Claim\n\nSettled.\n\n## Result\n") and "old" not in text
    assert "| 2 | 25.0% | 60.0% | +35.0% (" in text
    assert "Over 3 seeds: +35.0% ± 10.0%, 95% interval over seeds and problems +" in text
    assert "`seed_4` has not finished" in text and "### `tools`\n\nNot run yet." in text
    subprocess.run(command, check=True)
    assert page.read_text() == text
    assert (
        subprocess.run([sys.executable, SCRIPT], check=False, capture_output=True).returncode == 2
    )
