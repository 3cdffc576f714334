"""A run's folder knows how the run stands, and is not mixed with another configuration's."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import ConfigError, StorageError, TrainingError
from coding_model_project.runs.console import output_copied_to
from coding_model_project.runs.folder import (
    RunFolder,
    State,
    find_runs,
    refuse_unusable,
    sole_writer,
    stop_requested,
)
from coding_model_project.runs.lease import OBSERVER, machine
from coding_model_project.runs.overview import summarise
from coding_model_project.runs.resuming import inputs_of, refuse_changes, refuse_other_inputs
from coding_model_project.runs.starting import (
    StopSignal,
    _write_attempt,
    end_attempt,
    start_attempt,
)
from tests.synthetic_runs import write_run


def config(**coding):
    values = {"seed": 3, "run_dir": "here", "force": False} | coding
    trainer = {"total_training_steps": 5, "unset": "???"}
    return OmegaConf.create({"coding": values, "trainer": trainer})


def start(path, *, force=False, inputs=None, say=lambda _: None, observer=OBSERVER, **coding):
    return start_attempt(
        path,
        config(**coding),
        inputs=inputs or {},
        recipe="grpo",
        command=["python"],
        force=force,
        say=say,
        observer=observer,
    )


def test_an_attempt_is_running_until_it_ends(tmp_path):
    path = tmp_path / "run"
    attempt = start(path)
    run = RunFolder(path)
    assert run.state is State.running
    with pytest.raises(ConfigError, match="is running"):
        start(path)
    end_attempt(path, attempt)
    assert run.state is State.finished
    assert run.provenance()["seeds"] == {"coding.seed": 3}
    assert [found.path for found in find_runs(tmp_path)] == [path]


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (KeyboardInterrupt(), State.interrupted, None),
        (TrainingError("a worker\n died"), State.failed, "a worker died"),
        (ValueError(), State.failed, "ValueError"),
    ],
)
def test_how_it_ended_is_kept(tmp_path, error, state, reason):
    end_attempt(tmp_path, start(tmp_path), error)
    assert RunFolder(tmp_path).state is state
    assert RunFolder(tmp_path).attempts()[-1].error == reason


def test_a_process_that_is_gone_or_another_of_its_id_is_a_killed_run(tmp_path):
    attempt = start(tmp_path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for changed in ({"pid": gone.pid}, {"pid_ticks": attempt.pid_ticks - 100}):
        _write_attempt(RunFolder(tmp_path), replace(attempt, **changed))
        assert RunFolder(tmp_path).state is State.killed


def test_the_same_settings_go_on_without_a_word(tmp_path):
    said = []
    end_attempt(tmp_path, start(tmp_path), KeyboardInterrupt())
    created = RunFolder(tmp_path).provenance()["created"]
    (tmp_path / "rollouts.jsonl").write_text("kept\n")
    assert start(tmp_path, say=said.append).number == 2
    assert RunFolder(tmp_path).provenance()["created"] == created
    assert not said and (tmp_path / "rollouts.jsonl").exists()


def test_another_configuration_is_refused_with_the_difference(tmp_path):
    end_attempt(tmp_path, start(tmp_path), KeyboardInterrupt())
    RunFolder(tmp_path).metrics.write_text('{"step": 1, "data": {}}\n')
    with pytest.raises(ConfigError, match=r"coding\.seed: 3 → 4.*coding\.force=true"):
        start(tmp_path, seed=4)
    assert start(tmp_path, seed=4, force=True).number == 2
    assert OmegaConf.load(RunFolder(tmp_path).config).coding.seed == 4


def test_a_run_resumes_on_a_cluster_with_another_head(tmp_path):
    """The first head may be what died; a scheduler gives other nodes."""
    end_attempt(tmp_path, start(tmp_path), KeyboardInterrupt())
    run = RunFolder(tmp_path)
    run.metrics.write_text('{"step": 1, "data": {}}\n')
    for head in ("10.0.0.1:6379", "10.0.0.2:6379"):
        ray = {"ray_kwargs": {"ray_init": {"address": head}}}
        refuse_changes(run, OmegaConf.merge(config(), ray), {})
        run.config.write_text(OmegaConf.to_yaml(OmegaConf.merge(OmegaConf.load(run.config), ray)))


def test_a_run_resumes_with_more_patience(tmp_path):
    """After an outage, another time for retries, key or number of requests is no other run."""
    end_attempt(tmp_path, start(tmp_path, evaluation={"retry_s": 3.0}), KeyboardInterrupt())
    RunFolder(tmp_path).metrics.write_text('{"step": 1, "data": {}}\n')
    patient = {"retry_s": 900.0, "timeout_s": 60.0, "concurrency": 4, "api_key_env": "KEY"}
    assert start(tmp_path, evaluation=patient).number == 2


def test_a_ray_job_resumes_with_changed_code(tmp_path):
    """Ray unpacks each version of the code into another folder, to which relative paths refer."""
    places = [
        f"/tmp/ray/session_{n}/runtime_resources/working_dir_files/_ray_pkg_{n * 4}/data/tinycode"
        for n in ("0a", "1b")
    ]
    first, second = ({"data_dir": at, "problems": [f"{at}/p.jsonl", "/q.jsonl"]} for at in places)
    end_attempt(tmp_path, start(tmp_path, **first), KeyboardInterrupt())
    RunFolder(tmp_path).metrics.write_text('{"step": 1, "data": {}}\n')
    assert start(tmp_path, **second).number == 2
    end_attempt(tmp_path, RunFolder(tmp_path).attempts()[-1], KeyboardInterrupt())
    with pytest.raises(ConfigError, match=r"coding\.data_dir: data/tinycode → data/other"):
        start(tmp_path, **second | {"data_dir": places[1].replace("tinycode", "other")})


def test_other_data_or_another_model_is_refused_with_the_difference(tmp_path):
    data, model = tmp_path / "rl.parquet", tmp_path / "model"
    model.mkdir()
    data.write_bytes(b"rows")
    (model / "config.json").write_text("{}")
    named = OmegaConf.create({"data": {"train_files": str(data)}, "model": {"path": str(model)}})
    path = tmp_path / "run"
    before = inputs_of(named, "model.path")
    end_attempt(path, start(path, inputs=before), KeyboardInterrupt())
    run = RunFolder(path)
    run.metrics.write_text('{"step": 1, "data": {}}\n')
    end_attempt(path, start(path, inputs=inputs_of(named, "model.path")), KeyboardInterrupt())

    data.write_bytes(b"rows, other ones")
    (model / "model.safetensors").write_bytes(b"weights")
    after = inputs_of(named, "model.path")
    changed = r"data\.train_files rl\.parquet: 4 bytes.* → 16 bytes, .*model\.path model\.saf"
    with pytest.raises(ConfigError, match=changed):
        start(path, inputs=after)
    with pytest.raises(ConfigError, match=changed):
        refuse_other_inputs(run, after)
    assert start(path, inputs=after, force=True).number == 3
    assert run.inputs() == after


def test_an_attempt_that_made_nothing_does_not_bind_the_next(tmp_path):
    run = RunFolder(tmp_path)
    said = []
    end_attempt(tmp_path, start(tmp_path), ConfigError("verl refuses the configuration"))
    refused = {"problem": "p", "completion": "", "refused": "PromptError: too long"}
    (tmp_path / "completions.jsonl").write_text(json.dumps(refused) + "\n{half a li")
    (tmp_path / "rollouts.jsonl").write_text("of the step that crashed\n")
    assert start(tmp_path, seed=4, say=said.append).number == 2
    (line,) = said
    assert "failed without results" in line and "coding.seed: 3 → 4" in line
    assert run.provenance()["seeds"] == {"coding.seed": 4}
    assert not (tmp_path / "completions.jsonl").exists()
    assert not (tmp_path / "rollouts.jsonl").exists()
    assert run.log_dir(1).exists()


def test_one_completion_binds(tmp_path):
    end_attempt(tmp_path, start(tmp_path), KeyboardInterrupt())
    lines = [{"refused": "PromptError: too long"}, {"completion": "pass", "refused": None}]
    (tmp_path / "completions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    with pytest.raises(ConfigError, match=r"coding\.seed: 3 → 4"):
        start(tmp_path, seed=4)


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("/proc/x", "coding.run_dir=/proc/x: cannot be written"),
        ("{}/file", "/file is a file, not a folder; set coding.run_dir"),
        ("{}/file/below", "/file is a file"),
        ("", "coding.run_dir=: no folder given"),
    ],
)
def test_a_folder_that_cannot_be_a_runs(tmp_path, folder, says):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        refuse_unusable("coding.run_dir", folder.format(tmp_path))
    assert says in str(caught.value)


def test_what_children_print_is_in_the_log_too(tmp_path, capfd):
    log = tmp_path / "console.log"
    with output_copied_to(log):
        os.write(1, b"from here\n")
        subprocess.run(
            [sys.executable, "-c", "import os; os.write(2, b'from a child\\n')"], check=True
        )
    os.write(1, b"afterwards\n")
    shown = capfd.readouterr()
    assert shown.out.splitlines() == ["from here", "afterwards"]
    assert shown.err.splitlines() == ["from a child"]
    assert sorted(log.read_text().splitlines()) == ["from a child", "from here"]


def test_output_goes_on_after_a_sigterm_of_all_processes(tmp_path):
    """As Slurm sends it, to the run and to all that the run has started."""
    log = tmp_path / "console.log"
    code = f"""if True:
        import os, signal, time, psutil
        from pathlib import Path
        from coding_model_project.runs.console import output_copied_to
        from coding_model_project.runs.starting import StopSignal
        with output_copied_to(Path({str(log)!r})):
            with StopSignal(Path({str(tmp_path)!r}), listen=True):
                time.sleep(1)
                for process in psutil.Process().children(recursive=True):
                    process.terminate()
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
                print("saved a checkpoint", flush=True)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "saved a checkpoint\n"
    assert "SIGTERM: ending after this step" in done.stderr
    assert "saved a checkpoint\n" in log.read_text()


def test_sigterm_asks_once_and_then_insists(tmp_path, monkeypatch):
    insisted = False
    with pytest.raises(KeyboardInterrupt), StopSignal(tmp_path, listen=True):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop_requested(tmp_path)
        os.kill(os.getpid(), signal.SIGTERM)  # Slurm's, to the script and to the run
        time.sleep(0.01)
        later = time.monotonic() + 3
        monkeypatch.setattr(time, "monotonic", lambda: later)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except KeyboardInterrupt:  # at once, and not only where the signal's context ends
            insisted = True
    assert insisted


def test_a_killed_attempt_costs_the_time_until_its_last_words(tmp_path):
    run = RunFolder(write_run(tmp_path / "run", exit_code=None))
    log = run.log_dir(1)
    (log / "console.log").write_text("step 1")
    started = run.attempts()[0].started
    about = json.loads((log / "attempt.json").read_text())
    (log / "attempt.json").write_text(json.dumps(about | {"machine": machine(), "pid": 0}))
    for file in log.iterdir():
        os.utime(file, (started + 90, started + 90))
    assert run.state is State.killed
    assert summarise(run)["seconds"] == 90


def test_a_file_system_without_locks_is_one_line(tmp_path, monkeypatch):
    """As Lustre without -o flock answers."""

    def no_locks(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    message = rf"^{tmp_path}: cannot be locked.*; mount"
    with pytest.raises(StorageError, match=message), sole_writer(tmp_path, "evaluation"):
        pass
