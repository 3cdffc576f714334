"""Passwords and tokens of URLs in messages, records and file names."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from coding_model_project.errors import ConfigError, DataError, GenerationError
from coding_model_project.launch.compose import recorded_config
from coding_model_project.redaction import redacted
from coding_model_project.runs import provenance
from coding_model_project.runs.folder import RunFolder, plain_config
from coding_model_project.runs.resuming import comparable, settings_changed
from coding_model_project.storage.object_store import ObjectStore
from tests.tables import tables

CASES = tables("redaction")


@pytest.mark.parametrize(("url", "shown"), CASES["urls"])
def test_a_url_is_shown_without_its_secrets(url, shown):
    assert redacted(url) == shown
    assert str(GenerationError(url)) == shown
    assert redacted({"a": [url], "n": 1}) == {"a": [shown], "n": 1}


@given(st.text())
def test_it_is_idempotent(text):
    assert redacted(redacted(f"http://u:{text}@h")) == redacted(f"http://u:{text}@h")


@pytest.mark.parametrize("part", ["a:/", "http://", "a.b-", "?key", "http://u:p", "?k&"])
def test_long_texts_take_linear_time(part):
    started = time.process_time()
    redacted("x:/" + part * 50_000)
    assert time.process_time() - started < 2


def config(url: str):
    return OmegaConf.create({"coding": {"evaluation": {"base_url": url}}})


def test_no_record_of_a_run_has_a_password_and_it_resumes_with_another(tmp_path):
    recorded = comparable(config("http://u:first@h/v1"))
    assert "first" not in recorded and "u:***@h" in recorded
    assert settings_changed(recorded, config("http://u:second@h/v1")) == []
    before = OmegaConf.to_yaml(config("http://u:first@h/v1"))  # of an older version
    assert settings_changed(before, config("http://u:second@h/v1")) == []
    assert settings_changed(recorded, config("http://u:first@other/v1")) != []
    told = provenance.collect("x", ["python", "a=http://u:first@h"], {})
    assert "first" not in json.dumps(told["command"])
    (tmp_path / "run.json").write_text(json.dumps({"command": ["a=http://u:first@h"]}))
    assert RunFolder(tmp_path).provenance() == {"command": ["a=http://u:***@h"]}
    (tmp_path / "config.yaml").write_text(recorded)
    with pytest.raises(ConfigError, match=r"without its password \(base_url: http://u:\*\*\*@h"):
        recorded_config(tmp_path / "config.yaml", str(tmp_path))


def test_a_copys_name_has_no_token():
    assert ObjectStore("https://h/rows.jsonl?token=AB", "store").name == "rows.jsonl"
    assert ObjectStore("memory://runs/..", "store").name not in (".", "..")


def test_a_fetched_configuration_does_not_unfold(tmp_path):
    file = tmp_path / "config.yaml"
    lists = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    file.write_text("\n".join(["a0: &a0 x", *lists]))
    with pytest.raises(DataError, match="has YAML aliases"):
        plain_config(file)


def test_a_fetched_configuration_shows_no_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_SECRET", "hunter2")
    file = tmp_path / "config.yaml"
    file.write_text("model: {path: '${oc.env:MY_SECRET}'}\ncoding: {run_dir: x}\n")
    assert plain_config(file)["model"] == {"path": "${oc.env:MY_SECRET}"}
    with pytest.raises(ConfigError, match="has an interpolation"):
        recorded_config(file, str(tmp_path))
