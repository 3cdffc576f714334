"""A configuration that another machine recorded, compared with this start's."""

import pytest
from omegaconf import OmegaConf

from coding_model_project.runs.masking import made_ours


def written(run_dir, problems, key="k"):
    coding = {"run_dir": run_dir, "problems": [problems], "api_key": key, "lr": 0.1}
    return OmegaConf.to_yaml(OmegaConf.create({"coding": coding}))


@pytest.mark.parametrize(
    ("old", "new"), [("/home/a", "/home/b"), ("/", "/home/b"), ("/home/a", "/"), ("/home/a/", "/b")]
)
def test_paths_below_the_working_folder_are_this_starts(monkeypatch, tmp_path, old, new):
    monkeypatch.setattr("pathlib.Path.cwd", lambda: new)
    before = written(f"{old.rstrip('/')}/run", f"{old.rstrip('/')}/p.jsonl")
    now = written(f"{new.rstrip('/')}/run", f"{new.rstrip('/')}/p.jsonl")
    assert made_ours(before, now, {"cwd": old}) == now
    other = written(f"{new.rstrip('/')}/run", f"{new.rstrip('/')}/q.jsonl")
    assert made_ours(before, other, {"cwd": old}) != other


@pytest.mark.parametrize("now", ["another", None])
def test_a_masked_secret_is_whatever_it_is_now(now):
    present = written("/r", "/p", key=now)
    assert made_ours(written("/r", "/p", key="XXXXXXXX"), present, {}) == present
