"""Run folders mirrored to S3 (moto's server), followed from elsewhere, and gone on with elsewhere."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from coding_model_project.cli import main
from coding_model_project.cli.options import local_runs
from coding_model_project.errors import ConfigError
from coding_model_project.runs import mirror as mirroring
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.following import Followed
from coding_model_project.runs.lease import Heartbeat, beat
from coding_model_project.runs.masking import secrets_of
from coding_model_project.runs.mirror import (
    BackgroundMirror,
    Mirror,
    TakenOverError,
    mirrored,
    restore,
)
from coding_model_project.storage.fetching import CACHE_VARIABLE
from tests.moto_server import s3_server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("moto")]
URL = "s3://bucket/runs/grpo"
CONFIG = {
    "coding": {"run_dir": "/there", "mirror": {"url": URL, "every_s": 1}},
    "trainer": {"total_training_steps": 4},
    "ray_kwargs": {"env_vars": {"WANDB_API_KEY": "wandb-secret-1"}},
    "data": {"prompt_key": "prompt"},
}


@pytest.fixture(scope="module")
def server():
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(server, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    yield server
    for key in server.objects():
        server.client.delete_object(Bucket="bucket", Key=key)


@pytest.fixture
def run(tmp_path):
    """A run's folder after a step, still at work."""
    folder = tmp_path / "grpo"
    (folder / "logs/attempt_1").mkdir(parents=True)
    (folder / "checkpoints/global_step_1").mkdir(parents=True)
    (folder / "checkpoints/global_step_1/weights").write_bytes(b"w")
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(CONFIG)))
    origin = {"recipe": "grpo", "command": ["WANDB_API_KEY=wandb-secret-1"], "seeds": {}}
    origin |= {"created": 1.0, "host": "elsewhere"}
    (folder / "run.json").write_text(json.dumps({**origin, "inputs": {}}))
    (folder / "metrics.jsonl").write_text('{"step": 1, "data": {}}\n')
    attempt = {"pid": 1, "pid_ticks": 0, "host": "elsewhere", "machine": "?", "started": 0.0}
    (folder / "logs/attempt_1/attempt.json").write_text(json.dumps(attempt))
    beat(folder / "logs/attempt_1", 0)
    return folder


def started_again(folder):
    """Record another attempt of a run."""
    (folder / "logs/attempt_2").mkdir()
    attempt = json.loads((folder / "logs/attempt_1/attempt.json").read_text())
    (folder / "logs/attempt_2/attempt.json").write_text(json.dumps(attempt))


def mirror(folder, every_s=1.0):
    return Mirror(folder, URL, every_s, secrets_of(CONFIG, {"HF_TOKEN": "hf-secret-2"}))


def append(folder, name, text):
    with (folder / name).open("a") as file:
        file.write(text)


def test_a_run_is_followed_from_elsewhere(s3, run, capsys):
    at_work = mirror(run)
    at_work.sync()
    assert not [key for key in s3.objects() if "checkpoints" in key]
    assert main(["runs", "s3://bucket/runs"]) == 0
    shown = capsys.readouterr().out
    assert URL in shown
    assert "1/4" in shown
    for key in s3.objects():  # by somebody else
        s3.client.delete_object(Bucket="bucket", Key=key)
    append(run, "metrics.jsonl", '{"step": 2, "data": {}}\n')
    at_work.sync()
    assert main(["runs", "--root", URL]) == 0
    assert "2/4" in capsys.readouterr().out
    assert main(["runs", "s3://bucket/nothing"]) == 2
    assert "no run is mirrored" in capsys.readouterr().err
    assert main(["report", URL, "--out", "s3://bucket/pages/report.html"]) == 0
    assert b"<html" in s3.content("pages/report.html")[:200]


@pytest.fixture
def sent(monkeypatch):
    """Return the paths of all files that mirrors upload."""
    paths, send = [], Mirror._send

    def noted(self, path, name, size):
        paths.append(name)
        send(self, path, name, size)

    monkeypatch.setattr(Mirror, "_send", noted)
    return paths


def test_only_what_changed_is_sent_and_readers_follow_the_end_of_a_file(s3, run, sent):
    append(run, "rollouts.jsonl", "".join(f'{{"line": {n:04}}}\n' for n in range(30)))
    at_work = mirror(run)
    at_work.sync()
    followed = Followed(URL)
    followed.pull()
    there = followed.root / "rollouts.jsonl"
    reader = there.open()
    reader.read()
    sent.clear()
    append(run, "rollouts.jsonl", '{"line": 9999}\n')
    at_work.sync()
    assert sent == ["rollouts.jsonl"]
    followed.pull()
    assert reader.read() == '{"line": 9999}\n'  # the same file


@pytest.mark.parametrize("way", ["rewritten", "rotated"])
def test_another_file_of_the_same_name_is_sent(s3, run, way):
    """An evaluation rewrites rollouts.jsonl; a training rotates it, maybe during an outage."""
    append(run, "rollouts.jsonl", "x" * 99 + "\n" + "x" * 99 + "\n")
    at_work = mirror(run)
    at_work.sync()
    followed = Followed(URL)
    followed.pull()
    (run / "new.partial").write_text("y" * 99 + "\n" + "y" * 99 + "\n")
    if way == "rewritten":
        (run / "new.partial").replace(run / "rollouts.jsonl")
    else:  # the file system gives the deleted file's inode to the new one
        (run / "rollouts.jsonl").write_text((run / "new.partial").read_text())
    time.sleep(1.0)  # rounds are a second apart, which is the resolution of times in S3
    at_work.sync()
    followed.pull()
    assert (followed.root / "rollouts.jsonl").read_text() == (run / "rollouts.jsonl").read_text()


def test_the_end_of_a_run_does_not_wait_for_a_slow_store(s3, run, monkeypatch):
    said, slow = [], threading.Event()
    monkeypatch.setattr("coding_model_project.runs.mirror._CLOSE_S", 0.5)
    at_work = mirror(run)
    background = BackgroundMirror(at_work, said.append)
    monkeypatch.setattr(at_work, "sync", lambda: slow.wait(5))
    background.close()
    assert not slow.is_set()
    (line,) = said
    assert f"the mirror {URL} lacks the end of this run" in line and "same command" in line
    slow.set()


def test_a_file_that_shrinks_or_goes_does_so_there(s3, run):
    append(run, "rollouts.jsonl", "x" * 99 + "\n" + "y" * 99 + "\n")
    at_work = mirror(run)
    at_work.sync()
    followed = Followed(URL)
    followed.pull()
    (run / "rollouts.jsonl").write_text("z\n")
    (run / "metrics.jsonl").unlink()
    at_work.sync()
    followed.pull()
    assert (followed.root / "rollouts.jsonl").read_text() == "z\n"
    assert not (followed.root / "metrics.jsonl").exists()
    assert "runs/grpo/rollouts.jsonl" in s3.objects()
    assert not [key for key in s3.objects() if "metrics" in key]


def test_no_secret_leaves_the_machine(s3, run, monkeypatch):
    monkeypatch.setattr("coding_model_project.runs.mirror._CHUNK_BYTES", 100)
    (run / "logs/attempt_1/console.log").write_text("z" * 95 + " hf-secret-2 is split\n")
    mirror(run).sync()
    stored = b"".join(s3.content(key) for key in s3.objects())
    assert b"wandb-secret-1" in (run / "config.yaml").read_bytes()
    assert not any(part in stored for part in (b"wandb-secret-1", b"hf-secret-2", b"hf-sec"))
    assert b"prompt_key: prompt" in stored
    followed = Followed(URL)
    followed.pull()
    log = (followed.root / "logs/attempt_1/console.log").read_text()
    assert log == "z" * 95 + " XXXXXXXXXXX is split\n"


def test_an_outage_is_said_once_and_caught_up_with(s3, run):
    said, spoken = [], threading.Event()
    background = BackgroundMirror(mirror(run), lambda line: (said.append(line), spoken.set()))
    with s3.outage():
        append(run, "metrics.jsonl", '{"step": 2, "data": {}}\n')
        assert spoken.wait(60)
        spoken.clear()
    assert spoken.wait(60)
    background.close()
    assert len(said) == 2
    assert f"{URL}: the endpoint http://127.0.0.1:{s3.port} cannot be" in said[0]
    assert "is up to date again" in said[1]
    assert b'"step": 2' in s3.content("runs/grpo/metrics.jsonl")


def test_an_empty_machine_goes_on_where_a_dead_one_ended(s3, run, tmp_path, monkeypatch):
    dead = mirror(run)
    dead.sync()
    monkeypatch.setattr(mirroring, "LEASE_S", 1.0)
    said = []
    config = OmegaConf.create(CONFIG)
    config.coding.run_dir = str(tmp_path / "other/grpo")
    assert restore(URL, config, tmp_path / "other/grpo", said.append)
    restored = RunFolder(tmp_path / "other/grpo")
    assert said[-1].startswith(f"{restored.path}: restored from {URL}, without checkpoints; ")
    assert restored.metrics.read_text() == (run / "metrics.jsonl").read_text()
    assert restored.config.read_text() == OmegaConf.to_yaml(config)  # its secrets, and this folder
    last = restored.attempts()[-1]
    assert (last.exit_code, last.error) == (137, mirroring._DIED)
    started_again(restored.path)
    mirror(restored.path).sync()
    with pytest.raises(TakenOverError, match="another process has resumed this run"):
        dead.sync()  # it was but cut off


def test_a_live_run_is_not_taken_over(s3, run, tmp_path, monkeypatch):
    mirror(run).sync()
    background = BackgroundMirror(mirror(run), print)
    refused = pytest.raises(ConfigError, match=r"the run is running \(")
    with Heartbeat(run / "logs/attempt_1", beat_s=0.5), refused:
        restore(URL, OmegaConf.create(CONFIG), tmp_path / "other/grpo", print)
    background.close()
    assert not (tmp_path / "other/grpo").exists()


def test_another_run_is_not_written_over(s3, run, tmp_path):
    mirror(run).sync()
    other = tmp_path / "other"
    other.mkdir()
    (other / "run.json").write_text('{"created": 2.0}')
    with pytest.raises(ConfigError, match=r"another run.*its own URL"):
        mirror(other)


def test_a_new_run_at_the_url_of_a_deleted_one_shows_nothing_of_it(s3, run, tmp_path):
    mirror(run).sync()
    followed = Followed(URL)
    followed.pull()
    for key in s3.objects():
        s3.client.delete_object(Bucket="bucket", Key=key)
    (tmp_path / "new").mkdir()
    (tmp_path / "new/run.json").write_text("{}")
    mirror(tmp_path / "new").sync()
    followed.pull()
    found = {path.name for path in followed.root.rglob("*") if path.is_file()}
    assert found == {"run.json"}


def test_a_reader_follows_a_run_at_work(s3, run):
    background = BackgroundMirror(mirror(run), print)
    while "runs/grpo/run.json" not in s3.objects():
        time.sleep(0.1)
    with local_runs([Path(URL)], every_s=0.5) as ([folder], shown):
        assert shown(folder) == URL
        append(run, "metrics.jsonl", '{"step": 2, "data": {}}\n')
        until = time.monotonic() + 30
        while '"step": 2' not in (folder / "metrics.jsonl").read_text():
            assert time.monotonic() < until
            time.sleep(0.1)
    background.close()


def test_what_is_mirrored_is_restored_before_a_run_and_complete_after_it(s3, run, tmp_path):
    config = OmegaConf.create(CONFIG)
    with mirrored(config, run, print) as start:
        start()
        append(run, "metrics.jsonl", '{"step": 2, "data": {}}\n')
        ended = {**json.loads((run / "logs/attempt_1/attempt.json").read_text()), "exit_code": 130}
        (run / "logs/attempt_1/attempt.json").write_text(json.dumps(ended))
    other = tmp_path / "other/grpo"
    with mirrored(config, other, print):  # refused, say: it has not started to write there
        assert b'"step": 2' in (other / "metrics.jsonl").read_bytes()
    assert RunFolder(other).attempts()[0].exit_code == 130


@pytest.mark.parametrize("every_s", [0, 61])
def test_a_pause_that_is_no_sign_of_life(s3, run, every_s):
    with pytest.raises(ConfigError, match=f"coding.mirror.every_s={every_s}: set it to 1 to 60"):
        mirror(run, every_s)


def test_a_round_that_fails_in_its_middle_is_made_up_for(s3, run, monkeypatch):
    at_work = mirror(run)
    at_work.sync()
    append(run, "metrics.jsonl", '{"step": 2, "data": {}}\n')
    (run / "ungradable.jsonl").write_text("{}\n")
    put = at_work._store.put

    def fails(source, path, size):
        if path == "ungradable.jsonl":
            raise ConnectionResetError(104, "reset")
        put(source, path, size)

    monkeypatch.setattr(at_work._store, "put", fails)
    with pytest.raises(ConnectionResetError):
        at_work.sync()
    monkeypatch.setattr(at_work._store, "put", put)
    at_work.sync()
    followed = Followed(URL)
    followed.pull()
    for name in ("metrics.jsonl", "ungradable.jsonl"):
        assert (followed.root / name).read_bytes() == (run / name).read_bytes()
