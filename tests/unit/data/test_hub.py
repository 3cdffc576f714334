"""Data sets from the hub with the base install alone, and each failure as one line with a way out."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from coding_model_project.cli import main
from coding_model_project.data.loaders import LOADERS
from coding_model_project.data.loaders.remote import hub_patterns
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


class Hub(BaseHTTPRequestHandler):
    """The part of the hub that a download needs; `server.failure` replaces its answers."""

    def do_GET(self):
        failure = self.server.failure
        if failure is not None:
            self.answer(failure[0], {"X-Error-Code": failure[1]} if failure[1] else {})
        elif "/api/datasets/" in self.path and "/tree/" in self.path:
            content = self.server.content
            self.json([{"type": "file", "path": FILE, "size": len(content), "oid": "0" * 40}])
        elif "/api/datasets/" in self.path:
            siblings = [{"rfilename": FILE}]
            self.json({"id": "google-research-datasets/mbpp", "sha": SHA, "siblings": siblings})
        elif self.path.endswith(FILE):
            self.answer(200, {"ETag": '"1"', "X-Repo-Commit": SHA}, self.server.content)
        else:
            self.answer(404, {})

    do_HEAD = do_GET

    def json(self, content):
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def answer(self, status, headers, content=b""):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.failure = None
    pq.write_table(pa.Table.from_pylist([rows.MBPP] * 974), tmp_path / "rows.parquet")
    server.content = (tmp_path / "rows.parquet").read_bytes()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def command(folder, endpoint, *arguments, **environment):
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_DATASETS, *arguments, "--data-dir", str(folder / "data")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def write_rows(folder, hub, **environment):
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    arguments = ["data", "rows", "mbpp_train", "--no-check", "--out", str(folder / "out")]
    return command(folder, endpoint, *arguments, **environment)


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
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
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
