"""An export gets the starting model's files in place of verl's, and the dtype of its own weights."""

import json

import pytest

from coding_model_project.errors import CheckpointError
from coding_model_project.runs.starting_model import StartingModel
from tests.exports import files
from tests.tables import tables

CASES = tables("runs")

CONFIG = CASES["config"]


def write(folder, texts, dtypes=()):
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text if isinstance(text, str) else json.dumps(text))
    for number, dtype in enumerate(dtypes):
        header = json.dumps({"__metadata__": {}, f"w{number}": {"dtype": dtype}}).encode()
        file = folder / f"model-{number}.safetensors"
        file.write_bytes(len(header).to_bytes(8, "little") + header)
    return folder


@pytest.fixture
def start(tmp_path):
    texts = {
        "config.json": CONFIG,
        "generation_config.json": {"eos_token_id": [2, 7], "temperature": 0.6},
        "tokenizer.json": "start's",
        "tokenizer_config.json": {"chat_template": "start's"},
        "merges.txt": "a b",
        "modeling.py": "",
        "export.json": {"name": "another"},
    }
    return write(tmp_path / "start", texts, ["BF16"])


def exported(tmp_path, dtypes=("F32", "F32")):
    texts = {
        "config.json": {"eos_token_id": 2, "pad_token_id": 2, "dtype": "bfloat16"},
        "generation_config.json": {"eos_token_id": 2},
        "tokenizer.json": "verl's",
        "chat_template.jinja": "verl's",
        "special_tokens_map.json": {"pad_token": "</s>"},
        "model.safetensors.index.json": {"weight_map": {"w0": "model-0.safetensors"}},
    }
    return write(tmp_path / "huggingface", texts, dtypes)


def config_of(export):
    return json.loads((export / "config.json").read_text())


def test_all_files_but_the_weights_are_the_starting_model_s(start, tmp_path):
    export = exported(tmp_path)
    StartingModel.of({"path": str(start)}).write_to(export)
    ours, theirs = files(export), files(start)
    assert json.loads(ours.pop("config.json")) == CONFIG | {"torch_dtype": "float32"}
    del theirs["config.json"]
    assert ours == theirs
    assert (export / "model.safetensors.index.json").exists()
    assert len(list(export.glob("*.safetensors"))) == 2


@pytest.mark.parametrize("dtypes", [["BF16"], ["BF16", "F32"], []])
def test_a_dtype_that_is_true_or_not_one_stays_as_it_was(start, tmp_path, dtypes):
    export = exported(tmp_path, dtypes)
    StartingModel.of({"path": str(start)}).write_to(export)
    assert (export / "config.json").read_bytes() == (start / "config.json").read_bytes()


def test_what_the_training_itself_changes_is_exported(start, tmp_path):
    other = write(tmp_path / "other", {"config.json": {}, "tokenizer.json": "other's"})
    model = {
        "path": str(start),
        "tokenizer_path": str(other),
        "custom_chat_template": "mine",
        "override_config": {
            "attn_implementation": "sdpa",
            "max_position_embeddings": 4096,
            "text_config": {"layers": 3},
        },
    }
    export = exported(tmp_path)
    StartingModel.of(model).write_to(export)
    assert config_of(export) == CONFIG | {
        "torch_dtype": "float32",
        "max_position_embeddings": 4096,
        "text_config": {"layers": 3, "heads": 4},
    }
    assert (export / "chat_template.jinja").read_text() == "mine"
    assert (export / "tokenizer.json").read_text() == "other's"
    assert "temperature" in (export / "generation_config.json").read_text()


def test_a_hub_model_s_files_come_from_the_cache_without_a_network(start, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    repo = tmp_path / "hub" / "models--org--name"
    snapshot = repo / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    start.rename(snapshot)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(snapshot.name)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(repo.parent))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    export = exported(tmp_path)
    StartingModel.of({"path": "org/name"}).write_to(export)
    assert config_of(export)["eos_token_id"] == [2, 7]


def test_a_starting_model_that_is_gone_is_named(start, tmp_path):
    model = StartingModel.of({"path": str(start)})
    (start / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"start/config\.json of the starting model"):
        model.write_to(exported(tmp_path))
