"""The bash agent through verl's own trainer: real rooms, one of which is killed in the middle."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import psutil
import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.data.training.rows import rl_rows, write_rows
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.run import carry_out
from coding_model_project.runs.rollouts import read_all_rollouts
from coding_model_project.runs.ungradable import read_ungradable
from coding_model_project.synthetic.tinyshell import generate
from coding_model_project.synthetic.tinyshell.shell_files import write_shell_task
from coding_model_project.synthetic.tinyshell.shell_traces import demonstration
from recipes.harbor.__main__ import RECIPE
from tests.end_to_end.conftest import N_PROBLEMS

pytestmark = [pytest.mark.verl, pytest.mark.e2e, pytest.mark.sandbox, pytest.mark.timeout(600)]

TASKS = [task for task in generate("train", 40) if len(task.commands) == 1][:N_PROBLEMS]


def taught_model(out: Path, calls: Calls = Calls.block) -> None:
    """A model that has seen these tasks solved, a few times: it knows the form and half of the words."""
    from coding_model_project.synthetic import tiny_model

    class Shown:
        def texts(self, rng):
            return iter(str(demonstration(task, calls=calls)) for task in TASKS)

        def draw(self, rng, n):
            return [demonstration(rng.choice(TASKS), calls=calls) for _ in range(n)]

    shape = tiny_model.TinyModelConfig(
        vocab_size=400, hidden_size=128, intermediate_size=256, layers=1, steps=120, batch_size=8,
        warmup_steps=1, tools=calls is Calls.tools,
    )  # fmt: skip
    tiny_model.pretrain(out, Shown(), shape)


def prepared(folder: Path) -> list[str]:
    """Overrides of a short run on these tasks, which are written there."""
    problems = [write_shell_task(folder, task, str(n)) for n, task in enumerate(TASKS)]
    write_problems(folder / "problems.jsonl", problems)
    write_rows(folder / "rows.parquet", rl_rows(problems, PromptStyle.fenced), trains=True)
    return [
        "hardware=cpu",
        f"coding.run_dir={folder}/run",
        "coding.dataset=null",
        f"coding.problems=[{folder}/problems.jsonl]",
        "coding.min_memory_gb=1",
        "coding.bash.rooms=4",
        f"data.train_files={folder}/rows.parquet",
        f"data.val_files={folder}/rows.parquet",
        f"data.train_batch_size={N_PROBLEMS}",
        f"actor_rollout_ref.model.path={folder}/model",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.rollout.n=4",
        "trainer.total_training_steps=2",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.save_freq=-1",
    ]


def steps_of(run: Path) -> list[dict]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row["data"] for row in lines if "bash/commands" in row["data"]]


def kill_a_room(stop: threading.Event, killed: list[int]) -> None:
    """Kill the first room of this process's descendants that is seen."""
    while not stop.wait(0.05):
        for process in psutil.Process().children(recursive=True):
            try:
                if any("rooms.keeper" in word for word in process.cmdline()):
                    rooms = process.children()
                    if (
                        len(rooms) > 2
                    ):  # all at work: it is no child that the keeper tries things with
                        rooms[0].kill()
                        killed.append(rooms[0].pid)
                        return
            except psutil.Error:
                continue


def test_commands_as_tool_calls_train_and_what_a_killed_room_held_is_left_out(tmp_path, in_ray):
    taught_model(tmp_path / "model", Calls.tools)
    overrides = [*prepared(tmp_path), "coding.bash.calls=tools"]
    stop, killed = threading.Event(), []
    killer = threading.Thread(target=kill_a_room, args=(stop, killed))
    killer.start()
    try:
        carry_out(RECIPE, compose_recipe("harbor", overrides))
    finally:
        stop.set()
        killer.join()
    steps = steps_of(tmp_path / "run")
    assert [step["training/global_step"] for step in steps] == [1, 2]
    lost = list(read_ungradable(tmp_path / "run"))
    assert killed and [one.error for one in lost] == ["EnvironmentFailed"]
    assert [step["judge/infra_rate"] for step in steps] == [1 / 16, 0.0]
    for step in steps:
        assert 0 < step["bash/commands"] <= 3
        assert sum(value for key, value in step.items() if "bash/ended_" in key) == pytest.approx(1)
        assert step["response_length/mean"] * 16 > step["rollout/trained_tokens"]
    # vLLM's own counters: nothing that was generated is lost, and no outcome is trained on.
    assert steps[0]["rollout/trained_tokens"] <= steps[0]["rollout/generated_tokens"]
    assert steps[1]["rollout/trained_tokens"] == steps[1]["rollout/generated_tokens"]
    episodes = list(read_all_rollouts(tmp_path / "run"))
    assert len(episodes) == 31
    assert all("<tools>" in e.prompt for e in episodes)
    assert all(reply["reply_s"] > 0 for e in episodes for reply in e.extra["replies"])
    ran = [e for e in episodes if e.extra["replies"][0]["command"]]
    assert ran and all(e.completion.startswith("<tool_call>") for e in ran)
    assert all("exit code" in e.extra["replies"][0]["observation"] for e in ran)
    # The others ended with their first command.
    told = [e for e in ran if len(e.extra["replies"]) > 1]
    assert told
    for episode in told:
        n_told = len(episode.extra["replies"]) - 1
        assert episode.completion.count("<tool_response>") >= n_told
