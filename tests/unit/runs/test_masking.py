"""Secrets in the files of a mirror."""

from __future__ import annotations

import json

import pytest
from omegaconf import OmegaConf

from coding_model_project.runs.mirror.masking import masked, secrets_of


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


def test_the_path_of_a_file_is_no_secret(tmp_path):
    (tmp_path / "key.json").touch()
    assert secrets_of({}, {"GOOGLE_APPLICATION_CREDENTIALS": f"{tmp_path}/key.json"}) == ()
    assert secrets_of({}, {"OLDPWD": f"{tmp_path}/deleted"}) == ()
