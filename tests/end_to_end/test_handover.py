"""A model exported, served by vLLM, and evaluated by Phase 0 through the server."""

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import psutil
import pytest

from coding_model_project.http import free_port
from coding_model_project.runs.checkpoints import write_manifest
from tests.bench.trials import write_task
from tests.synthetic_runs import write_run

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.timeout(600)]

COMMAND = [sys.executable, "-m", "coding_model_project"]


def wait_for(url, process):
    while process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return answer.read()
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"the server ended with {process.returncode}")


def test_exported_served_and_evaluated_and_nothing_stays(world, tmp_path):
    out = tmp_path / "export"
    subprocess.run([*COMMAND, "export", world.root / "model", "--out", out], check=True)
    port = free_port()
    options = ["--port", str(port), "--name", "mine", "--max-model-len", "192"]
    server = subprocess.Popen([*COMMAND, "serve", out, *options, "--dtype", "float32"])
    try:
        assert b'"mine"' in wait_for(f"http://127.0.0.1:{port}/v1/models", server)
        below = psutil.Process(server.pid).children(recursive=True)
        evaluation = tmp_path / "evaluation"
        subprocess.run(
            [
                *(sys.executable, "-m", "recipes.baseline", "hardware=cpu"),
                f"coding.run_dir={evaluation}",
                "coding.prompt=bare",
                "coding.evaluation.model=mine",
                f"coding.evaluation.base_url=http://127.0.0.1:{port}/v1",
                f"coding.evaluation.datasets=[{world.root}/problems.jsonl]",
                *("coding.evaluation.protocol=sampled", "coding.evaluation.n=2"),
                "coding.evaluation.max_tokens=32",
            ],
            check=True,
        )
        server.send_signal(signal.SIGINT)
        server.wait(60)
    finally:
        server.kill()
    _, left = psutil.wait_procs(below, timeout=10)  # Python's own tracker ends after its parent
    assert not left
    again = [*COMMAND, "export", world.root / "model", "--out", out]
    subprocess.run([*again, "--evaluation", evaluation], check=True)
    card = (out / "README.md").read_text()
    assert "| problems | pass@1 0.0%" in card  # a random model writes no program
    assert "8 (0 ungradable)" in card
    assert "asked a server for `mine`" in card


def add_checkpoint(run, step, model):
    checkpoint = run / "checkpoints" / f"global_step_{step}"
    shutil.copytree(model, checkpoint / "actor" / "huggingface")
    write_manifest(checkpoint)


def test_a_newer_checkpoint_takes_the_place_of_the_one_served(world, tmp_path):
    run = write_run(tmp_path / "grpo", metrics={1: {"judge/accepted": 0.5}})
    port = free_port()
    options = ["--latest", run, "--follow", "--port", str(port), "--max-model-len", "192"]
    server = subprocess.Popen([*COMMAND, "serve", *options, "--dtype", "float32"])
    url = f"http://127.0.0.1:{port}/v1/models"

    def names():
        return {one["id"] for one in json.loads(wait_for(url, server))["data"]}

    try:
        time.sleep(3)
        assert server.poll() is None, "it waits for the first checkpoint"
        for step in (1, 2):
            add_checkpoint(run, step, world.root / "model")
            while (now := names()) != {"grpo", f"grpo_step_{step}"}:
                assert step == 2, now
                time.sleep(0.5)
        below = psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGINT)
        server.wait(60)
    finally:
        server.kill()
    _, left = psutil.wait_procs(below, timeout=10)
    assert not left


def test_the_last_checkpoint_is_served_evaluated_and_stopped_by_one_command(world, tmp_path):
    run = write_run(tmp_path / "grpo", metrics={1: {"judge/accepted": 0.5}})
    add_checkpoint(run, 1, world.root / "model")
    command = [*COMMAND, "eval", "latest", run, "--dataset", f"mine={world.root}/problems.jsonl"]
    more = ["--prompt", "bare", "--max-tokens", "16", "--protocol", "sampled", "--n", "2"]
    subprocess.run([*command, *more], check=True, timeout=300)
    out = run / "evaluations" / "grpo_step_1"
    info = json.loads((out / "run_info.json").read_text())
    assert info["model"] == "grpo_step_1"
    assert json.loads((out / "metrics.json").read_text())["mine"]["graded"] == 8
    tasks = [write_task(tmp_path / "tasks" / f"t{n}") for n in range(2)]
    command = [*COMMAND, "eval", "latest", run, *(w for task in tasks for w in ("--tasks", task))]
    more = ["--turns", "1", "--max-tokens", "8", "--concurrency", "2", "--out", tmp_path / "job"]
    done = subprocess.run([*command, *more], stdout=subprocess.PIPE, check=True, timeout=300)
    assert json.loads(done.stdout.splitlines()[-1])["n_trials"] == 2
    assert not [
        one
        for one in psutil.process_iter(["cmdline"])
        if "grpo_step_1" in (one.info["cmdline"] or ())
    ]
