"""Models, data and results from and to `s3://`, against moto's server."""

import json
import multiprocessing
from types import SimpleNamespace

import pytest
import stamina
from omegaconf import OmegaConf

from coding_model_project.cli import main
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ConfigError, DownloadError
from coding_model_project.runs.checkpoint_store import CheckpointStore
from coding_model_project.runs.resuming import inputs_of, with_local_inputs
from coding_model_project.storage.fetching import CACHE_VARIABLE, cache_dir, folder_on_disk, on_disk
from tests import fresh
from tests.answering import answering
from tests.fakes import stdin_problem
from tests.moto_server import s3_server
from tests.processes import ran

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("moto")]

PROBLEM = stdin_problem(("1 2", "3"), id="mine/1", split="train")


@pytest.fixture(scope="module")
def s3():
    with s3_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    with stamina.set_testing(True, attempts=2):
        yield


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"w" * 1000)
    return folder


def test_a_model_is_fetched_once_for_each_version(s3, model):
    url = s3.upload(model, "models/tiny")
    copy = folder_on_disk(url)
    assert copy.endswith("/tiny")
    assert folder_on_disk(f"{url}/") == copy
    (model / "model.safetensors").write_bytes(b"v" * 1000)  # as long, another content
    s3.upload(model, "models/tiny")
    newer = folder_on_disk(url)
    assert newer != copy
    assert on_disk(f"{url}/model.safetensors").read_bytes() == b"v" * 1000


def _fetch(url, found):
    found.put(folder_on_disk(url))


def test_processes_that_want_the_same_model_fetch_it_once(s3, model):
    (model / "model.safetensors").write_bytes(b"w" * 20_000_000)
    url = s3.upload(model, "models/shared")
    spawn = multiprocessing.get_context("spawn")
    found = spawn.Queue()
    processes = [spawn.Process(target=_fetch, args=(url, found)) for _ in range(2)]
    for process in processes:
        process.start()
    copies = {found.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(copies) == 1
    assert not list(cache_dir().glob("*.partial"))


def test_a_run_names_urls_and_reads_copies(s3, model, tmp_path):
    (tmp_path / "rl_train.parquet").write_bytes(b"rows")
    config = OmegaConf.create(
        {
            "data": {"train_files": s3.upload(tmp_path / "rl_train.parquet", "rl_train.parquet")},
            "coding": {"problems": [str(tmp_path / "rl_train.parquet")]},
            "model": {"path": s3.upload(model, "models/run")},
        }
    )
    local = with_local_inputs(config, "model.path")
    assert config.model.path == "s3://bucket/models/run"
    here = OmegaConf.merge(config, {"model": {"path": str(model)}})
    here.data.train_files = str(tmp_path / "rl_train.parquet")
    assert inputs_of(local, "model.path") == inputs_of(here, "model.path")
    config.model.path = "s3://bucket/models/none"
    with pytest.raises(ConfigError, match=r"^model.path=s3://bucket/models/none: no such folder"):
        with_local_inputs(config, "model.path")


def test_commands_read_and_write_urls(s3, tmp_path, capsys):
    write_problems(tmp_path / "p.jsonl", [PROBLEM])
    answer = {"problem_id": "mine/1", "completion": "```python\nprint(3)\n```"}
    (tmp_path / "c.jsonl").write_text(json.dumps(answer) + "\n")
    problems = s3.upload(tmp_path / "p.jsonl", "data/p.jsonl")
    completions = s3.upload(tmp_path / "c.jsonl", "data/c.jsonl")
    out = "s3://bucket/out/verdicts.jsonl"
    command = ["grade", "--problems", problems, "--completions", completions, "--out", out]
    assert main(command) == 0
    assert json.loads(s3.content("out/verdicts.jsonl"))["passed"]
    assert "uploaded to s3://bucket/out/verdicts.jsonl" in capsys.readouterr().err
    rows = ["data", "rows", f"mine={problems}", "--out", "s3://bucket/out/rows"]
    assert main(rows) == 0
    assert {"out/rows/rl_train.parquet", "out/rows/manifest.json"} <= set(s3.objects("out/rows"))
    assert main(["grade", "--problems", "s3://bucket/none", "--completions", completions]) == 2
    assert "error: --problems: s3://bucket/none: no such object" in capsys.readouterr().err


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────


def test_a_bucket_that_does_not_exist(s3):
    for read in (on_disk, folder_on_disk):
        with pytest.raises(ConfigError, match=r"^s3://nowhere/x: no such bucket; create it"):
            read("s3://nowhere/x")
    with pytest.raises(ConfigError, match="no such bucket"):
        CheckpointStore("s3://nowhere/run", 3, print).check_writable()


def test_an_endpoint_that_is_down(s3, monkeypatch):
    from s3fs import S3FileSystem

    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    S3FileSystem.clear_instance_cache()
    with s3.outage(), pytest.raises(DownloadError) as raised:
        on_disk("s3://bucket/x")
    said = str(raised.value)
    assert said.startswith(f"s3://bucket/x: the endpoint http://127.0.0.1:{s3.port} ")
    assert said.endswith("AWS_ENDPOINT_URL")


def test_no_credentials(s3, monkeypatch):
    from s3fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(ConfigError, match="no credentials found; set AWS_ACCESS_KEY_ID"):
        on_disk("s3://bucket/x")


def test_no_client_library():
    code = (
        "import sys; sys.modules['s3fs'] = None\n"
        "from coding_model_project.cli import main\n"
        "sys.exit(main(['runs', 's3://bucket/x']))"
    )
    done = ran([fresh.python(), "-c", code])
    assert done.returncode == 2
    assert "error: s3://bucket/x: s3fs, which reads s3://, is not installed" in done.stderr


@pytest.fixture
def refusing(monkeypatch):
    """A server that has one answer for everything; S3 answers HEAD without a body."""
    from s3fs import S3FileSystem

    refusing = SimpleNamespace(code=("AccessDenied", 403, "Access Denied"))

    def answer(method, *_):
        code, status, message = refusing.code
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        return status, {"Content-Type": "application/xml"}, b"" if method == "HEAD" else body

    with answering(answer) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-access-key")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        S3FileSystem.clear_instance_cache()
        yield refusing
    S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    ("answer", "way"),
    [
        (("AccessDenied", 403, "Access Denied"), "have no permission for it; allow s3:ListBucket"),
        (("ExpiredToken", 400, "The provided token has expired."), "have expired; renew them"),
        (("InvalidAccessKeyId", 403, "The key does not exist"), "check AWS_ACCESS_KEY_ID"),
        (("RequestTimeTooSkewed", 403, "The difference is too large"), "the clock of this machine"),
    ],
)
def test_what_the_store_refuses(refusing, monkeypatch, answer, way):
    monkeypatch.setattr(refusing, "code", answer)
    for read in (on_disk, folder_on_disk):
        with pytest.raises(ConfigError, match=way) as raised:
            read("s3://bucket/x")
        assert str(raised.value).startswith("s3://bucket/x: ")
        assert "\n" not in str(raised.value)
    store = CheckpointStore("s3://bucket/run", 3, print)
    with pytest.raises(ConfigError, match=way) as raised:
        store.check_writable()
    assert str(raised.value).startswith("checkpoints at s3://bucket/run: they cannot be written: ")
