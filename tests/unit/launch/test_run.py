"""Where a training resumes at a URL with checkpoints, its own or others; the lines that it prints."""

from __future__ import annotations

import errno
import json
import os
import shlex
import threading
from contextlib import nullcontext
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import CheckpointError, ConfigError
from coding_model_project.launch import run
from coding_model_project.launch import run as launch_run
from coding_model_project.launch.checks import checks
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.recipe import Recipe
from coding_model_project.runs.checkpoint_store import BackgroundUploader, CheckpointStore
from coding_model_project.runs.checkpoints import checkpoints_in, write_manifest
from coding_model_project.storage.object_store import ObjectStore


@pytest.fixture
def url(tmp_path):
    return f"memory://{tmp_path.name}/checkpoints"


def configured(url, folder, *, lr=0.1, mode="auto", force=False, key="secret-abc-1", every=2):
    trainer = {"resume_mode": mode, "default_local_dir": str(folder / "checkpoints")}
    coding = {"checkpoints": {"url": url, "keep": every}, "run_dir": str(folder), "force": force}
    coding["sandbox"] = {"api_key": key}
    return OmegaConf.create({"trainer": trainer, "optim": {"lr": lr}, "coding": coding})


def start(url, folder, inputs=None, **changed):
    config = configured(url, folder, **changed)
    launch_run._prepare_resume(config, config, inputs or {"data.train_files a.parquet": "9 bytes"})
    return [path.name for path in checkpoints_in(folder / "checkpoints")]


def made(checkpoints, step):
    folder = checkpoints / f"global_step_{step}"
    folder.mkdir()
    (folder / "weights").write_bytes(b"w")
    write_manifest(folder)
    return folder


def upload(url, checkpoints, step, succeeds=True, store=None):
    folder = made(checkpoints, step)
    taken = pytest.raises(CheckpointError, match="another start has taken")
    with nullcontext() if succeeds else taken:
        (store or CheckpointStore(url, 2, print)).upload(folder)


@pytest.mark.parametrize("mode", ["disable", "resume_path"])
def test_a_run_that_does_not_resume_refuses_a_url_with_checkpoints(tmp_path, url, mode):
    """Its own would be the oldest there, and deleted after their upload."""
    start(url, tmp_path / "new", mode=mode)
    upload(url, tmp_path, 100)
    with pytest.raises(ConfigError, match=rf"up to global_step_100, which .*={mode} does not"):
        start(url, tmp_path / "new", mode=mode)


def test_checkpoints_of_a_version_that_recorded_no_run_are_resumed_from(tmp_path, url):
    upload(url, tmp_path, 7)
    assert start(url, tmp_path / "one") == ["global_step_7"]


def test_another_run_does_not_resume_from_them(tmp_path, url):
    start(url, tmp_path / "any", lr=0.2)  # without checkpoints it is anybody's
    assert start(url, tmp_path / "one") == []
    upload(url, tmp_path, 7)
    with pytest.raises(ConfigError, match=r"another run \(optim\.lr: 0\.1 → 0\.2\): set another"):
        start(url, tmp_path / "two", lr=0.2)
    with pytest.raises(ConfigError, match=r"another run \(data\.train_files a.*: 9 bytes → 8"):
        start(url, tmp_path / "two", {"data.train_files a.parquet": "8 bytes"})
    assert start(url, tmp_path / "two", lr=0.2, force=True) == ["global_step_7"]
    assert start(url, tmp_path / "two", lr=0.2) == ["global_step_7"]  # it is the owner now
    with pytest.raises(ConfigError, match="another run"):
        start(url, tmp_path / "one")


def test_the_same_run_resumes_in_another_folder_with_another_key(tmp_path, url):
    start(url, tmp_path / "one")
    upload(url, tmp_path, 7)
    assert b"secret-abc" not in CheckpointStore(url, 2, print).read_owner()
    elsewhere = {"key": "secret-xyz-2", "every": 5}
    assert start(f"{url}/", tmp_path / "elsewhere" / "one", **elsewhere) == ["global_step_7"]


def test_of_two_runs_that_started_before_any_checkpoint_only_the_later_one_uploads(tmp_path, url):
    start(url, tmp_path / "one")
    start(url, tmp_path / "two", lr=0.2)
    for name in ("one", "two"):
        upload(url, tmp_path / name / "checkpoints", 7 if name == "one" else 3, name == "two")
    assert CheckpointStore(url, 2, print).steps() == [3]
    assert start(url, tmp_path / "two", lr=0.2) == ["global_step_3"]


def test_a_start_that_loses_the_url_amid_an_upload_deletes_nothing(tmp_path, url, monkeypatch):
    start(url, tmp_path / "one", every=1)
    put, one = ObjectStore.put, tmp_path / "one" / "checkpoints"

    def put_slowly(store, *given):
        put(store, *given)
        monkeypatch.setattr(ObjectStore, "put", put)
        start(url, tmp_path / "two", lr=0.2)
        upload(url, tmp_path / "two" / "checkpoints", 3)

    monkeypatch.setattr(ObjectStore, "put", put_slowly)
    upload(url, one, 7, succeeds=False)
    assert CheckpointStore(url, 1, print).steps() == [3]


def test_an_attempt_that_was_taken_over_in_the_same_folder_uploads_no_more(tmp_path, url):
    checkpoints = tmp_path / "one" / "checkpoints"
    start(url, tmp_path / "one")
    store = CheckpointStore(url, 2, print)
    upload(url, checkpoints, 7, store=store)
    start(url, tmp_path / "one")
    upload(url, checkpoints, 8, succeeds=False, store=store)
    upload(url, checkpoints, 9)
    assert CheckpointStore(url, 2, print).steps() == [9, 7]


def test_a_record_that_cannot_be_read_for_once_delays_an_upload(tmp_path, url, monkeypatch):
    checkpoints = tmp_path / "one" / "checkpoints"
    start(url, tmp_path / "one")
    read = Path.read_bytes

    def stale(path):
        monkeypatch.setattr(Path, "read_bytes", read)
        raise OSError(errno.ESTALE, "Stale file handle")

    first, second = (made(checkpoints, step) for step in (7, 8))
    monkeypatch.setattr(Path, "read_bytes", stale)
    failed = threading.Event()
    uploader = BackgroundUploader(CheckpointStore(url, 2, print), lambda line: failed.set())
    uploader.submit(first)
    assert failed.wait(60)
    uploader.submit(second)
    uploader.close(60)
    assert CheckpointStore(url, 2, print).steps() == [8, 7]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"{}", b"[]", b"null", b'{"config": "a: ["}', b'{"config": "a: 1"}', b"\xff"],
)
def test_a_damaged_record_is_named_with_the_way_out(tmp_path, url, content):
    start(url, tmp_path / "one")
    upload(url, tmp_path, 7)
    fsspec.filesystem("memory").pipe_file(f"{url}/owner.json", content)
    with pytest.raises(ConfigError, match=r"owner\.json there is not .*: delete it, or set"):
        start(url, tmp_path / "one")
    assert start(url, tmp_path / "one", force=True) == ["global_step_7"]


def test_a_models_revision_may_be_unknown_and_a_file_may_not(tmp_path, url):
    start(url, tmp_path / "one", {"model.path revision": "abc", "data x.parquet": "1"})
    upload(url, tmp_path, 7)
    assert start(url, tmp_path / "two", {"data x.parquet": "1"}) == ["global_step_7"]
    with pytest.raises(ConfigError, match=r"model\.path x\.bin: absent → 3"):
        start(url, tmp_path / "two", {"data x.parquet": "1", "model.path x.bin": "3"})


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n"
WORDS = "a passphrase of many words " * 6


def test_no_secret_is_recorded_however_it_is_written(tmp_path, url, monkeypatch):
    monkeypatch.setenv("DEPLOY_PRIVATE_KEY", PEM)
    monkeypatch.setenv("HF_TOKEN", "token-in-a-url")
    monkeypatch.setenv("WORDS_SECRET", WORDS)
    monkeypatch.setenv("ODD_SECRET", os.fsdecode(b"\xff\xfe-not-utf8"))
    named = {"data.train_files a.parquet?token=token-in-a-url": "9 bytes"}
    for key in (PEM, WORDS):
        start(url, tmp_path / "one", named, key=key)
        found = CheckpointStore(url, 2, print).read_owner()
        assert found
        for secret in (b"MIIEvQIBADAN", b"many words", b"token-in-a-url", b"not-utf8"):
            assert secret not in found, secret


@pytest.fixture
def check(tmp_path):
    (tmp_path / "global_step_3").mkdir()

    def run(recipe, mode, path):
        path = "null" if path is None else tmp_path / path
        keys = [f"trainer.resume_mode={mode}", f"trainer.resume_from_path={path}"]
        config = compose_recipe(recipe, ["hardware=cpu", *keys])
        checks._check_resume_path(config)

    return run


@pytest.mark.parametrize("recipe", ["sft", "grpo"])
def test_only_an_existing_checkpoint_is_resumed_from(check, recipe):
    check(recipe, "resume_path", "global_step_3")
    check(recipe, "auto", None)
    check(recipe, "disable", "nowhere/global_step_4")
    for path, says in (
        ("nowhere/global_step_4", "no such folder"),
        (None, "expected the path of a checkpoint"),
        ("latest", "expected the path of a checkpoint"),
    ):
        with pytest.raises(ConfigError, match=says) as caught:
            check(recipe, "resume_path", path)
        assert "trainer.resume_from_path=" in str(caught.value)
        assert str(path) in str(caught.value)


# ── the lines that a training prints of its own: where it resumes, and where it has finished ──────


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A user's own files for SFT, in a process that nothing else is set up in."""
    for name in ("prepare_environment", "log_into"):
        monkeypatch.setattr(run, name, lambda *_, **__: None)
    monkeypatch.setattr(run.processes, "start_sentinel", lambda: None)
    monkeypatch.setattr(run.checks, "check_memory", lambda *_: None)
    row = {"data_source": "mine", "messages": [{"role": "user", "content": "x"}]}
    row["extra_info"] = {"split": "train"}
    pq.write_table(pa.Table.from_pylist([row] * 40), tmp_path / "train.parquet")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    overrides = [
        "hardware=cpu",
        "coding.dataset=null",
        f"data.train_files={tmp_path}/train.parquet",
        f"data.val_files={tmp_path}/train.parquet",
        f"model.path={tmp_path}/model",
        f"coding.run_dir='{tmp_path}/my run'",
    ]
    return lambda: compose_recipe("sft", overrides)


def recipe(tmp_path, *, fails=False):
    def train(config):
        folder = tmp_path / "my run"
        with (folder / "metrics.jsonl").open("a") as log:
            log.write(json.dumps({"step": 7, "data": {"train/loss": 1.0}}) + "\n")
        saved = folder / "checkpoints" / "global_step_7"
        saved.mkdir(parents=True, exist_ok=True)
        (saved / "weights").write_text("0")
        write_manifest(saved)
        if fails:
            raise KeyboardInterrupt

    return Recipe(name="sft", model_key="model.path", train=train)


def test_a_training_says_where_it_resumes_and_what_comes_next(config, tmp_path, capsys):
    folder, command = tmp_path / "my run", ["python", "-m", "recipes.sft"]
    with pytest.raises(KeyboardInterrupt):
        run.carry_out(recipe(tmp_path, fails=True), config(), command)
    first = capsys.readouterr().out
    assert "resuming" not in first
    assert "finished:" not in first
    run.carry_out(recipe(tmp_path), config(), command)
    lines = capsys.readouterr().out.splitlines()
    assert f"resuming {folder} from step 7" in lines
    assert lines[-1].startswith(f"finished: {folder} after 7 steps")
    assert lines[-1].endswith(f"report {shlex.quote(str(folder))}")
    run.carry_out(recipe(tmp_path), config(), command)
    assert "has finished; for another run" in capsys.readouterr().out


def test_inside_another_program_nothing_comes_next(config, tmp_path, capsys):
    run.carry_out(recipe(tmp_path), config())
    assert "finished:" not in capsys.readouterr().out
