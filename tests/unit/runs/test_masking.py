"""Secrets in the files of a mirror."""

from __future__ import annotations

import json
import os

import pytest
from omegaconf import OmegaConf

from coding_model_project.runs.masking import made_ours, masked, secrets_of


@pytest.mark.parametrize("secret", ["/wJalrXUtnFEMI/K7MDENG", 'pa"ss\\wörd', "it's: #1 secret"])
def test_a_secret_of_any_characters_is_masked_in_json_and_yaml(secret):
    secrets = secrets_of({}, {"AWS_SECRET_ACCESS_KEY": secret})
    node = {"key": secret}
    texts = [json.dumps(node), json.dumps(node, ensure_ascii=False), secret]
    texts.append(OmegaConf.to_yaml(OmegaConf.create(node)))
    for text in texts:
        content = masked(text.encode(), secrets)
        assert len(content) == len(text.encode())
        assert b"XXXXXX" in content
        for part in (secret[:4], secret[-4:]):
            assert part.encode() not in content


def test_a_key_of_several_lines_is_masked_line_by_line():
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEF"
    secret = f"-----BEGIN PRIVATE KEY-----\n{line}\n{line[::-1]}\n-----END PRIVATE KEY-----\n"
    secrets = secrets_of({}, {"DEPLOY_PRIVATE_KEY": secret})
    for node in ({"key": secret}, {"a": {"b": {"key": f"{secret} and more"}}}):
        content = masked(OmegaConf.to_yaml(OmegaConf.create(node)).encode(), secrets)
        assert line.encode() not in content and line[::-1].encode() not in content


def test_a_secret_that_is_no_utf_8_is_masked():
    secret = os.fsdecode(b"\xff\xfe-not-utf8")
    assert masked(b"a \xff\xfe-not-utf8 b", secrets_of({}, {"ODD_KEY": secret})) == (
        b"a XXXXXXXXXXX b"
    )


def test_the_path_of_a_file_is_no_secret(tmp_path):
    (tmp_path / "key.json").touch()
    assert secrets_of({}, {"GOOGLE_APPLICATION_CREDENTIALS": f"{tmp_path}/key.json"}) == ()
    assert secrets_of({}, {"OLDPWD": f"{tmp_path}/deleted"}) == ()


# A configuration that another machine recorded, compared with this start's.


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
