"""Lineage of weights: further training passes, everything else does not."""

import numpy as np
import pytest

from coding_model_project.harbor.posttrain import submission
from coding_model_project.harbor.posttrain.submission import JudgeError, Unfit, Verdict, open_model
from tests.unit.harbor.posttrain_models import weights, write_model

pytestmark = pytest.mark.verl

LAYER = "layers.0.up.weight"


@pytest.fixture
def base(tmp_path):
    return write_model(tmp_path / "base")


def judged(folder, base, siblings=None):
    return submission.judge(open_model(folder), base, siblings or {})


def moved(by, seed=1):
    noise = weights(seed)
    return {name: value + by * noise[name] for name, value in weights().items()}


@pytest.mark.parametrize("by", [0.0, 0.01, 0.3])
def test_further_training_is_accepted(by, base, tmp_path):
    found = judged(write_model(tmp_path / "mine", moved(by)), base)
    assert found.verdict is Verdict.accepted
    assert found.details["mean_relative_distance"] == pytest.approx(by, rel=0.1, abs=1e-6)


def test_one_new_matrix_of_many_is_still_the_model(base, tmp_path):
    rng = np.random.default_rng(3)
    base = write_model(
        tmp_path / "large", {f"l.{n}.weight": rng.normal(size=(9, 9)) for n in range(12)}
    )
    mine = {f"l.{n}.weight": value for n, value in enumerate(_arrays(base))}
    mine["l.3.weight"] = rng.normal(size=(9, 9))
    assert judged(write_model(tmp_path / "mine", mine), base).verdict is Verdict.accepted
    for n in range(6):
        mine[f"l.{n}.weight"] = rng.normal(size=(9, 9))
    assert judged(write_model(tmp_path / "less", mine), base).verdict is Verdict.rejected


def _arrays(folder):
    found = dict(open_model(folder).tensors())
    return [found[f"l.{n}.weight"].numpy() for n in range(len(found))]


def test_another_model_is_rejected(base, tmp_path):
    found = judged(write_model(tmp_path / "other", weights(5)), base)
    assert found.verdict is Verdict.rejected
    assert "mean cosine" in found.reasons[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop(LAYER), "1 tensors are missing"),
        (lambda w: w.update({"extra.weight": w[LAYER]}), "extra.weight is not the base model's"),
        (lambda w: w.update({LAYER: w[LAYER][:3]}), "shape"),
        (lambda w: w.update({LAYER: w[LAYER] * np.float32("nan")}), "not finite"),
        (lambda w: w.update({LAYER: w[LAYER].astype(np.int32)}), "not finite"),
    ],
)
def test_other_tensors_are_rejected(change, said, base, tmp_path):
    tensors = weights()
    change(tensors)
    found = judged(write_model(tmp_path / "mine", tensors), base)
    assert found.verdict is Verdict.rejected
    assert any(said in reason for reason in found.reasons)


@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors"])
def test_a_damaged_base_model_is_no_verdict(damaged, base, tmp_path):
    mine = write_model(tmp_path / "mine", weights())
    (base / damaged).write_text("{")
    with pytest.raises(JudgeError, match=r"the base model .* cannot be read: "):
        judged(mine, base)


def test_a_sibling_is_known_by_one_matrix(base, tmp_path):
    sibling = write_model(tmp_path / "instruct", moved(0.01))
    hashes = {"instruct": submission.hashes_of(open_model(sibling))}
    assert judged(base, base, hashes).verdict is Verdict.accepted
    mine = moved(0.02, seed=2) | {LAYER: moved(0.01)[LAYER]}
    found = judged(write_model(tmp_path / "mine", mine), base, hashes)
    assert found.verdict is Verdict.rejected
    assert found.reasons == (f"1 matrices are those of instruct, such as {LAYER}",)


def test_a_file_that_is_no_safetensors_file_is_unfit(base, tmp_path):
    folder = write_model(tmp_path / "mine")
    (folder / "model.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(Unfit, match="not a readable safetensors file"):
        judged(folder, base)
