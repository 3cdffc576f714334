"""The pipeline's bookkeeping: what is done once, what anew, what is refused; and its table."""

import json
from dataclasses import replace

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.pipeline import outcome
from coding_model_project.launch.pipeline.pipeline import PipelineSettings
from coding_model_project.launch.steps import Phase, carry_out
from tests.pages import packed
from tests.synthetic_evaluations import write_evaluation
from tests.synthetic_runs import write_run
from tests.tables import tables


class Kitchen:
    """A step that copies its ingredient, and counts how often it does."""

    def __init__(self, root):
        self.root = root / "pipeline"
        self.ingredient = root / "place" / "flour.txt"
        self.ingredient.parent.mkdir()
        self.ingredient.write_text("white")
        self.n_made = 0

    def bake(self, *options):
        command = ("bake", f"--from={self.ingredient}", *options)
        return carry_out(self.root, "sft/rows", command, [self.ingredient], self._make)

    def _make(self, folder):
        self.n_made += 1
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bread.txt").write_text(f"{self.ingredient.read_text()} bread")
        return [folder / "bread.txt"]


@pytest.fixture
def kitchen(tmp_path):
    return Kitchen(tmp_path)


def test_a_step_is_done_once(kitchen):
    first = kitchen.bake()
    assert kitchen.bake() == first
    assert kitchen.n_made == 1
    assert first.files()[0].read_text() == "white bread"


def test_what_it_reads_may_move(kitchen):
    first = kitchen.bake()
    moved = kitchen.root.parent / "elsewhere"
    kitchen.ingredient.parent.rename(moved)
    kitchen.ingredient = moved / "flour.txt"
    assert kitchen.bake() == first


def test_another_content_or_setting_is_done_anew_beside_the_old(kitchen, capsys):
    first = kitchen.bake()
    kitchen.ingredient.write_text("dark")
    second = kitchen.bake()
    third = kitchen.bake("--long")
    assert kitchen.n_made == 3
    assert len({first.folder, second.folder, third.folder}) == 3
    assert first.files()[0].read_text() == "white bread"
    said = " ".join(capsys.readouterr().out.split())
    assert "sft/rows: differs from" in said
    assert "flour.txt [0]: 5 bytes" in said
    assert "--long" in said


def test_what_was_not_finished_is_done_again(kitchen):
    done = kitchen.bake()
    (kitchen.root / "sft").rename(kitchen.root / "sft_killed")
    (folder,) = (kitchen.root / "sft_killed").iterdir()
    (folder / "step.json").unlink()
    (kitchen.root / "sft_killed").rename(kitchen.root / "sft")
    assert kitchen.bake().outputs == done.outputs
    assert kitchen.n_made == 2


def test_a_changed_result_is_refused(kitchen):
    (bread,) = kitchen.bake().files()
    bread.write_text("stone")
    with pytest.raises(ConfigError, match=r"sft/rows: its output files.*bread\.txt.*or delete"):
        kitchen.bake()
    assert bread.read_text() == "stone"


@pytest.mark.parametrize(("phases", "says"), tables("recipes")["phases"])
def test_phases_that_make_no_sense(phases, says):
    config = compose_recipe("pipeline", ["hardware=cpu", f"phases={phases}"])
    with pytest.raises(ConfigError, match=says):
        PipelineSettings.of(config, [], "cpu")


@pytest.mark.parametrize("hardware", ["cpu", "gpu_1x", "gpu_8x"])
def test_what_is_said_of_coding_reaches_every_phase_but_its_folder(hardware):
    config = compose_recipe("pipeline", [f"hardware={hardware}"])
    said = ["coding.seed=3", "coding.run_dir=x", "grpo.steps=2", "+coding.sandbox.kwargs.a=1"]
    settings = PipelineSettings.of(config, said, hardware)
    assert settings.common[0] == f"hardware={hardware}"
    assert settings.common[2:] == ("coding.seed=3", "+coding.sandbox.kwargs.a=1")
    assert all(settings.tree[phase]["steps"] > 0 for phase in ("sft", "dpo", "grpo", "repair"))


@pytest.mark.parametrize("hardware", ["cpu", "gpu_1x", "gpu_8x"])
def test_the_demo_is_the_pipeline_with_a_control(hardware):
    config = compose_recipe("demo", [f"hardware={hardware}"])
    settings = PipelineSettings.of(config, [], hardware)
    assert settings.phases == ("baseline", "sft", "sft_continued", "grpo")
    assert settings.tree["must_gain"] == ["sft", "grpo"]
    assert settings.tree["sft_continued"]["steps"] == settings.tree["sft"]["steps"]


def phase(root, name, solved):
    """A phase whose model solves the first of 40 problems."""
    folder = root / name
    outcomes = {f"p{i}": [i < solved] * 2 for i in range(40)}
    write_evaluation(folder, {"toy": outcomes}, model=name)
    (folder / "metrics.json").write_text(json.dumps({"toy": {"errors": {"wrong_answer": 0.1}}}))
    return Phase(name=name, model=name, steps=(), evaluation=folder)


def test_each_phase_is_compared_with_the_previous_one(tmp_path):
    solved = {"baseline": 5, "sft": 20, "dpo": 20, "grpo": 10}
    rows = outcome.table_rows([phase(tmp_path, name, n) for name, n in solved.items()])
    assert [row.score.mean for row in rows] == [5 / 40, 20 / 40, 20 / 40, 10 / 40]
    assert rows[0].gain is None
    gains = [row.gain for row in rows[1:]]
    assert [(gain.first, gain.second) for gain in gains] == [
        ("baseline", "sft"), ("sft", "dpo"), ("dpo", "grpo"),
    ]  # fmt: skip
    assert [round(gain.delta, 3) for gain in gains] == [0.375, 0, -0.25]
    assert outcome.without_gain(rows, ["baseline", "sft", "dpo", "grpo", "repair"]) == [
        "dpo", "grpo",
    ]  # fmt: skip
    better, same, worse, *_ = outcome.closing_lines(rows)
    assert better.startswith("sft: better than baseline by 37.5%, p =")
    assert same.startswith("dpo: no significant difference from sft")
    assert worse.startswith("grpo: worse than dpo by 25.0%")
    assert all(gain.corrected_p >= gain.p for gain in gains)


def test_the_report_holds_tables_and_charts_and_trusts_no_name(tmp_path, kitchen):
    run = write_run(tmp_path / "run", recipe="sft", metrics={1: {"train/loss": 0.5}})
    cost = {"tokens": {"generated": 0, "trained": 5}, "judge_s": 0.0, "seconds": 60}
    (run / "summary.json").write_text(json.dumps(cost))
    done = replace(kitchen.bake(), name="sft/train", folder=str(run), seconds=60.0)
    sft = replace(phase(tmp_path, "<b>sft", 20), steps=(done,))
    outcome.write(tmp_path / "out", [phase(tmp_path, "baseline", 5), sft])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<b>" not in page.partition("<script>")[0]
    assert "&lt;b&gt;sft: better than baseline by 37.5%" in page
    figures = packed(page, "figures-data")
    assert [trace["y"] for trace in figures["scores"]["data"]] == [[5 / 40], [20 / 40]]
    assert figures["differences"]["data"][0]["x"] == [pytest.approx(15 / 40)]
    assert "loss" in packed((tmp_path / "out" / "runs.html").read_text(), "figures-data")


def test_one_phase_is_no_pipeline(tmp_path):
    with pytest.raises(ConfigError, match=r"recipes\.baseline evaluates a model"):
        outcome.table_rows([phase(tmp_path, "baseline", 1)])


def test_costs_sum_over_the_steps_that_make_a_model(tmp_path, kitchen):
    done = kitchen.bake()
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    cost = {"tokens": {"generated": 7, "trained": 5}, "judge_s": 1.5, "seconds": 3}
    (run / "summary.json").write_text(json.dumps(cost))
    steps = [
        replace(done, seconds=2.0),
        replace(done, name="sft/train", folder=str(run), seconds=4.0),
        replace(done, name="sft/evaluation", folder=str(run), seconds=8.0),
    ]
    sft = replace(phase(tmp_path, "sft", 2), steps=tuple(steps))
    row = outcome.table_rows([phase(tmp_path, "baseline", 1), sft])[1]
    assert (row.making.generated, row.making.trained, row.making.judge_s) == (7, 5, 1.5)
    assert (row.making.seconds, row.measuring.seconds) == (6.0, 8.0)
