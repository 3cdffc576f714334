"""`export`: what is written is a whole model, and its card says what was measured, of this model only."""

import json

import pytest

from coding_model_project import cli
from coding_model_project.evaluation.results import METRICS
from coding_model_project.runs.checkpoints import write_manifest
from coding_model_project.runs.resuming import fingerprint
from tests.synthetic_evaluations import write_evaluation
from tests.synthetic_runs import write_run


def write_model(folder, *, name="w", dtype="F32", value=b"\0\0\0\0"):
    folder.mkdir(parents=True)
    header = json.dumps({name: {"dtype": dtype, "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + value)
    (folder / "config.json").write_text('{"dtype": "bfloat16", "eos_token_id": 2}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def run(tmp_path):
    folder = write_run(tmp_path / "grpo", metrics={4: {"judge/accepted": 0.5}})
    (folder / "config.yaml").write_text("{actor_rollout_ref: {}, coding: {reward: {kind: dense}}}")
    checkpoint = folder / "checkpoints" / "global_step_4"
    write_model(checkpoint / "actor" / "huggingface")
    write_manifest(checkpoint)
    return folder


def evaluated(tmp_path, weights=None):
    folder = write_evaluation(tmp_path / "ev", {"toy/1": [True]}, sampling={"n": 1}, prompt="bare")
    rate = {"value": 0.62, "low": 0.51, "high": 0.73, "problems": 50}
    found = {"problems": 50, "samples": 50, "ungradable": 1, "pass@k": {"1": rate}}
    found |= {
        "errors": {"syntax_error": 0.03},
        "tokens": {"total": 1234},
        "judge_s": {"total": 5.6},
    }
    (folder / METRICS).write_text(json.dumps({"toy": found}))
    inputs = {} if weights is None else {"coding.evaluation.model model.safetensors": weights}
    (folder / "run.json").write_text(json.dumps({"inputs": inputs}))
    return folder


def test_a_run_s_last_checkpoint_with_its_measured_numbers(run, tmp_path, capsys):
    weights = fingerprint(run / "checkpoints/global_step_4/actor/huggingface/model.safetensors")
    evaluation = evaluated(tmp_path, weights)
    assert cli.main(["export", str(run)]) == 0
    out = run / "exports" / "global_step_4"
    assert "No evaluation was given" in (out / "README.md").read_text()
    assert cli.main(["export", str(run), "--evaluation", str(evaluation)]) == 0, "a new card"
    card = (out / "README.md").read_text()
    measured = ("62.0% (51.0–73.0)", "syntax_error 3.0%", "50 (1 ungradable)", "1,234")
    for text in (*measured, "Step 4 of `recipes.grpo`"):
        assert text in card
    assert "not checked" not in card
    config = json.loads((out / "config.json").read_text())
    assert config == {"dtype": "float32", "eos_token_id": 2}, "as the weights are"
    assert {path.name for path in out.iterdir()} >= {"tokenizer.json", "model.safetensors"}
    capsys.readouterr()


def test_numbers_of_other_weights_never_come_into_a_card(run, tmp_path, capsys):
    evaluation = evaluated(tmp_path, "4 bytes, sha256 other")
    assert cli.main(["export", str(run), "--evaluation", str(evaluation)]) == 2
    said = capsys.readouterr().err
    assert "was of a model with other weights" in said
    evaluation = evaluated(tmp_path / "served")
    assert cli.main(["export", str(run), "--evaluation", str(evaluation)]) == 0
    card = (run / "exports/global_step_4/README.md").read_text()
    assert "it was not checked that its weights are these" in card


def test_what_is_no_model_or_would_overwrite_one_is_said_in_one_line(run, tmp_path, capsys):
    def refused(code, *words):
        assert cli.main(["export", *map(str, words)]) == code
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    assert "no such folder" in refused(2, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no complete checkpoint" in refused(2, tmp_path / "empty")
    other = write_model(tmp_path / "other")
    assert "holds something else" in refused(2, run, "--out", other)
    peft = write_model(tmp_path / "peft", name="base_model.model.x.lora_A.default.weight")
    assert "not merged" in refused(3, peft, "--out", tmp_path / "out")
    (other / "tokenizer.json").unlink()
    assert "no tokenizer" in refused(3, other, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_serving_no_checkpoint_is_refused_in_a_line(tmp_path, capsys):
    for words, said in [
        (["--max-model-len", "192"], "no checkpoint; pass one before --max-model-len"),
        (["--follow", str(tmp_path)], "--follow needs --latest"),
        (["--latest", str(tmp_path), "--max-model-len", "192"], "no complete checkpoint"),
        (["--latest", str(tmp_path / "none"), "--follow"], "no such folder"),
    ]:
        assert cli.main(["serve", *words]) == 2
        (line,) = [one for one in capsys.readouterr().err.splitlines() if one]
        assert said in line
