"""Data sets from the hub with the base install alone, and each failure as one line with a way out."""

import json
import os
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from coding_model_project.cli import main
from coding_model_project.data.loaders import LOADERS
from coding_model_project.data.loaders.table import hub_patterns
from tests.answering import answering
from tests.processes import ran
from tests.tables import tables
from tests.unit.data.rows import published as rows

CASES = tables("hub")

pytestmark = pytest.mark.slow

SHA = "4bb6404fdc6cacfda99d4ac4205087b89d32030c"
FILE = "full/train-00000-of-00001.parquet"
WITHOUT_DATASETS = (
    "import sys; sys.modules['datasets'] = None; from coding_model_project.cli import main;"
    "raise SystemExit(main(sys.argv[1:]))"
)


@pytest.fixture
def hub(tmp_path):
    """The part of the hub that a download needs; `failure` replaces its answers."""
    pq.write_table(pa.Table.from_pylist([rows.MBPP] * 974), tmp_path / "rows.parquet")
    content = (tmp_path / "rows.parquet").read_bytes()

    def answer(method, path, _):
        if hub.failure is not None:
            status, error = hub.failure
            return status, {"X-Error-Code": error} if error else {}, b""
        if path.endswith(FILE):
            return 200, {"ETag": '"1"', "X-Repo-Commit": SHA}, content
        if "/api/datasets/" not in path:
            return 404, {}, b""
        file = {"type": "file", "path": FILE, "size": len(content), "oid": "0" * 40}
        name = "google-research-datasets/mbpp"
        about = {"id": name, "sha": SHA, "siblings": [{"rfilename": FILE}]}
        found = json.dumps([file] if "/tree/" in path else about).encode()
        return 200, {"Content-Type": "application/json"}, found

    with answering(answer) as url:
        hub = SimpleNamespace(url=url, failure=None)
        yield hub


def command(folder, endpoint, *arguments, **environment):
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **environment,
    }
    return ran(
        [sys.executable, "-c", WITHOUT_DATASETS, *arguments, "--data-dir", str(folder / "data")],
        env=environment,
    )


def write_rows(folder, hub, **environment):
    arguments = ["data", "rows", "mbpp_train", "--no-check", "--out", str(folder / "out")]
    return command(folder, hub.url, *arguments, **environment)


def test_a_public_set_comes_from_the_hub_without_the_datasets_package(hub, tmp_path):
    done = write_rows(tmp_path, hub)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "rl_train.parquet").is_file()
    again = write_rows(tmp_path, hub, HF_HUB_OFFLINE="1")
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    ("failure", "code", "says"),
    [
        ((404, "RepoNotFound"), 2, "the hub has no data set google-research-datasets/mbpp"),
        ((404, "RevisionNotFound"), 2, f"no revision {SHA}"),
        ((403, "GatedRepo"), 2, "accept its terms at https://huggingface.co/datasets/"),
        ((403, None), 2, "the hub answered HTTP 403"),
        ((500, None), 3, "the hub answered HTTP 500"),
    ],
)
def test_what_the_hub_refuses_is_one_line(hub, tmp_path, capsys, monkeypatch, failure, code, says):
    hub.failure = failure
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    assert main(["data", "preflight", "mbpp", "--data-dir", str(tmp_path)]) == code
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


WAYS_OUT = (
    "mbpp_train=PATH",
    "--data-dir",
    "hf download google-research-datasets/mbpp --repo-type dataset --local-dir",
)


def test_no_network_is_infrastructure_with_the_way_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert main(["data", "preflight", "mbpp_train", "--data-dir", str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(words in error for words in (*WAYS_OUT, "the hub cannot be reached"))


def test_a_hub_that_may_not_be_asked_is_no_traceback(tmp_path):
    arguments = ["data", "preflight", "mbpp_train"]
    done = command(tmp_path, "http://127.0.0.1:9", *arguments, HF_HUB_OFFLINE="1")
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("\n") == 1
    assert all(words in done.stderr for words in (*WAYS_OUT, "HF_HUB_OFFLINE is set"))


def test_a_missing_hub_library_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["data", "preflight", "mbpp", "--data-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "pip install huggingface_hub" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("name", "split", "pattern"), CASES["files"])
def test_the_files_of_a_part_are_named_as_its_repository_names_them(name, split, pattern):
    published = LOADERS[name].published
    part = next(part for part in published.parts if part.split == split)
    assert pattern in hub_patterns(published, part)
