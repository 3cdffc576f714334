"""Studies: what a definition must say, what runs, and that a page concludes no more than it shows."""

import sys

import numpy as np
import pytest

from coding_model_project import cli
from coding_model_project.studies import study_page
from tests import fresh
from tests.pages import packed
from tests.synthetic_evaluations import write_evaluation
from tests.synthetic_runs import write_run
from tests.tables import tables
from tests.text_cases import sources

CASES = tables("studies")

SOURCES = sources(__file__)

pytestmark = pytest.mark.slow

DEFINITION = SOURCES["definition"]


@pytest.fixture
def study(tmp_path):
    file = tmp_path / "design" / "studies" / "it.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(DEFINITION)
    return file


def page(study, out, capsys):
    code = cli.main(["study", "page", str(study), "--out", str(out)])
    said = capsys.readouterr()
    return (study.parent.parent / "it.md").read_text() if code == 0 else (code, said.err)


def write_member(out, arm, seed, chance, stages, n_steps=1):
    folder = out / arm / f"seed_{seed}"
    for number, recipe in enumerate(stages, 1):
        metrics = {"judge/accepted": chance, "judge/seconds": 5.0 / n_steps}
        steps = dict.fromkeys(range(1, n_steps + 1), metrics)
        write_run(folder / f"{number}_{recipe}", recipe=recipe, metrics=steps, seed=seed)
    write_run(folder / "evaluation", recipe="baseline", seed=seed)
    rng = np.random.default_rng(seed)
    samples = {f"toy/{i}": [bool(x) for x in rng.random(4) < chance] for i in range(60)}
    write_evaluation(folder / "evaluation", samples, model=arm, seed=seed)


def write_all(out, new, seeds=(1, 2)):
    for seed in seeds:
        write_member(out, "old", seed, 0.3, ["grpo"])
        write_member(out, "new", seed, new, ["sft", "grpo"])


def test_before_the_first_run_the_page_says_so(study, tmp_path, capsys):
    text = page(study, tmp_path / "out", capsys)
    assert "0 of 4 members. Nothing is concluded." in text
    assert "| `new` | sft: as it is; then grpo: `b=2` `m={previous}` |" in text
    assert "has not been committed" in text


def test_a_difference_is_described_for_two_seeds_and_claimed_for_no_others(study, tmp_path, capsys):
    write_all(tmp_path / "out", new=0.7)
    text = page(study, tmp_path / "out", capsys)
    assert "`new` − `old`" in text
    assert "toy, 60 problems (descriptive: 2 seeds a side):" in text
    assert "Descriptive: this is said of these trainings and claimed of no others" in text
    assert (tmp_path / "out" / "report.html").exists()
    # per member: 240 samples of 10 tokens; 0.5 s each of judging, and 5 s in each training
    assert "| `new` | 2 | 2,400 | 0 | 130 |" in text


def test_what_is_not_shown_is_not_concluded(study, tmp_path, capsys):
    write_all(tmp_path / "out", new=0.3)
    text = page(study, tmp_path / "out", capsys)
    assert "No difference between `new` and `old` is shown on toy" in text
    (tmp_path / "out/new/seed_2/evaluation/logs/attempt_1/attempt.json").unlink()
    text = page(study, tmp_path / "out", capsys)
    assert "3 of 4 members have finished: this is no result yet." in text


@pytest.mark.parametrize(("chances", "said"), CASES["conclusions"])
def test_a_conclusion_needs_interval_and_tests(study, tmp_path, capsys, chances, said):
    arms = ("old", "old", "new", "new")
    for arm, seed, chance in zip(arms, (1, 2, 1, 2), chances, strict=True):
        stages = ["grpo"] if arm == "old" else ["sft", "grpo"]
        write_member(tmp_path / "out", arm, seed, chance, stages)
    text = page(study, tmp_path / "out", capsys)
    assert said in text
    assert " ± " in text


def test_with_three_seeds_nothing_is_called_descriptive(study, tmp_path, capsys):
    study.write_text(DEFINITION.replace("[1, 2]", "[1, 2, 3]"))
    write_all(tmp_path / "out", new=0.7, seeds=(1, 2, 3))
    assert "escriptive" not in page(study, tmp_path / "out", capsys)


def test_curves_are_in_the_page_in_short_and_over_each_other_in_the_report(study, tmp_path, capsys):
    for seed, chance in ((1, 0.25), (2, 0.75)):
        write_member(tmp_path / "out", "old", seed, chance, ["grpo"], n_steps=4)
    write_member(tmp_path / "out", "new", 1, 0.5, ["sft", "grpo"], n_steps=3)
    text = page(study, tmp_path / "out", capsys)
    assert "| old, mean of 2 seeds | ▁▁▁▁ | 50.0% → 50.0% |" in text
    assert "| new, one seed | ▁▁▁ | 50.0% → 50.0% |" in text

    report = (tmp_path / "out" / "report.html").read_text()
    assert "old, mean of 2 seeds 50.0% (seeds 25.0% to 75.0%) at step 4" in report
    old, new = packed(report, "figures-data")["arms"]["data"]
    assert (old["x"], old["y"]) == ([1, 2, 3, 4], [0.5] * 4)
    assert (old["low"], old["high"]) == ([0.25] * 4, [0.75] * 4)
    assert (new["x"], new["y"]) == ([1, 2, 3], [0.5] * 3)

    assert page(study, tmp_path / "out", capsys) == text  # without new results nothing changes


def test_a_seed_that_lags_behind_does_not_bend_the_mean():
    line = study_page.arm_line("old", [{1: 0.2, 2: 0.4, 3: 0.9}, {1: 0.4, 2: 0.6}])
    assert (line.steps, line.values) == ([1, 2], pytest.approx([0.3, 0.5]))
    assert (line.low, line.high) == ([0.2, 0.4], [0.4, 0.6])


def test_a_long_training_has_few_marks():
    curve = {step: step / 5000 for step in range(1, 5001)}
    _, marks, ends = study_page.curve_row(study_page.arm_line("old", [curve]))
    assert (len(marks), marks[0], marks[-1], ends) == (40, "▁", "█", "0.0% → 100.0%")


def test_a_page_is_not_replaced_by_one_without_its_runs(study, tmp_path, capsys):
    write_all(tmp_path / "out", new=0.7)
    before = page(study, tmp_path / "out", capsys)
    code, said = page(study, tmp_path / "elsewhere", capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert "has no runs of this study" in said
    assert (study.parent.parent / "it.md").read_text() == before


@pytest.mark.parametrize(("before", "after", "said"), CASES["wrong definition"])
def test_a_wrong_definition_is_one_line(study, tmp_path, capsys, before, after, said):
    study.write_text(DEFINITION.replace(before, after))
    code, error = page(study, tmp_path / "out", capsys)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def test_a_failed_member_is_said_and_the_others_go_on(study, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(fresh.python()))
    nowhere = "hardware=cpu, actor_rollout_ref.model.path=./nowhere, coding.dataset=null"
    study.write_text(
        DEFINITION.replace("a=1", nowhere)
        .replace('    - sft: []\n    - grpo: ["m={previous}"]', f"    - grpo: [{nowhere}]")
        .replace("seeds: [1, 2]", "seeds: [1]")
        .replace("b=2", "coding.min_memory_gb=0")
    )
    command = ["study", "run", str(study), "--out", str(tmp_path / "out")]
    assert cli.main(command) == 3
    said = capfd.readouterr()
    for arm in ("old", "new"):
        assert f"error: {arm}, seed 1: 1_grpo failed with exit code 2" in said.out
    assert "no such folder" in said.out
    assert "2 members failed (old, seed 1; new, seed 1)" in said.err
    study.write_text(study.read_text().replace("Once.", "Twice."))
    assert cli.main(command) == 2
    assert "has changed since its runs" in capfd.readouterr().err
