"""The bash agent through verl's own trainer: a real room is killed in the middle, later vLLM."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.data.training.rows import rl_rows, write_rows
from coding_model_project.errors import TrainingError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.run import carry_out
from coding_model_project.runs.rollouts import read_all_rollouts, read_ungradable
from coding_model_project.synthetic.tinyshell import write_shell_task
from recipes.harbor.__main__ import RECIPE
from tests.end_to_end.conftest import N_PROBLEMS
from tests.end_to_end.shell_world import TASKS
from tests.end_to_end.started import logged
from tests.processes import command_line

pytestmark = [pytest.mark.verl, pytest.mark.e2e, pytest.mark.sandbox, pytest.mark.timeout(600)]

WITHIN_S = 60


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
    return [row["data"] for row in logged(run) if "bash/commands" in row["data"]]


def kill_a_room() -> bool:
    """Kill a room of this process's descendants once more than two are at work."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "rooms.keeper" in command_line(process):
                rooms = process.children()
                if len(rooms) > 2:  # none is a child that the keeper tries things with
                    rooms[0].kill()
                    return True
    return False


def kill_the_engine() -> bool:
    """Kill vLLM's process."""
    for process in psutil.Process().children(recursive=True):
        if command_line(process).startswith("VLLM::EngineCore"):
            process.kill()
            return True
    return False


def test_commands_as_tool_calls_train_a_killed_rooms_are_left_out_and_a_dead_engine_ends_the_run(
    tmp_path, in_ray, tool_caller
):
    """One run: a room is killed in the first of two steps, and vLLM's process after them."""
    run, killed_at, stop = tmp_path / "run", [], threading.Event()

    def kill() -> None:
        for happened in (kill_a_room, lambda: len(steps_of(run)) >= 2, kill_the_engine):
            while not happened():
                if stop.wait(0.2):
                    return
        killed_at.append(time.monotonic())

    killer = threading.Thread(target=kill)
    overrides = [*prepared(tmp_path), "coding.bash.calls=tools"]
    overrides += [f"actor_rollout_ref.model.path={tool_caller}", "trainer.total_training_steps=9"]
    killer.start()
    try:
        with pytest.raises(TrainingError) as caught:
            carry_out(RECIPE, compose_recipe("harbor", overrides))
    finally:
        stop.set()
        killer.join()
    assert killed_at
    assert time.monotonic() - killed_at[0] < WITHIN_S
    assert len(str(caught.value).splitlines()) == 1
    steps = steps_of(run)[:2]
    assert [step["training/global_step"] for step in steps] == [1, 2]
    lost = [row for row in read_ungradable(run) if row.step <= 2]
    assert [one.error for one in lost] == ["EnvironmentFailed"]
    assert [step["judge/infra_rate"] for step in steps] == [1 / 16, 0.0]
    for step in steps:
        assert 0 < step["bash/commands"] <= 3
        assert sum(value for key, value in step.items() if "bash/ended_" in key) == pytest.approx(1)
        assert step["response_length/mean"] * 16 > step["rollout/trained_tokens"]
    # vLLM's own counters: nothing that was generated is lost, and no outcome is trained on.
    assert steps[0]["rollout/trained_tokens"] <= steps[0]["rollout/generated_tokens"]
    assert steps[1]["rollout/trained_tokens"] == steps[1]["rollout/generated_tokens"]
    episodes = [one for one in read_all_rollouts(run) if one.step <= 2]
    assert len(episodes) == 31
    assert all("<tools>" in e.prompt for e in episodes)
    assert all(reply["reply_s"] > 0 for e in episodes for reply in e.extra["replies"])
    ran = [e for e in episodes if e.extra["replies"][0]["command"]]
    assert ran and all("<tool_call>" in e.completion for e in ran)
    assert all("exit code" in e.extra["replies"][0]["observation"] for e in ran)
    # The others ended with their first command.
    told = [e for e in ran if len(e.extra["replies"]) > 1]
    assert told
    for episode in told:
        n_told = len(episode.extra["replies"]) - 1
        assert episode.completion.count("<tool_response>") >= n_told
