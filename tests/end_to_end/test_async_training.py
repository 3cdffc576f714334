"""Asynchronous training on the smallest world there is: its bound, its account, and how it ends."""

from __future__ import annotations

import threading
import time

import pytest

from coding_model_project.errors import TrainingError
from coding_model_project.runs.rollouts import read_all_rollouts, read_ungradable
from tests.end_to_end.test_training import metrics, train

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]

WORST = "training/off_policy/trajectory_staleness_worst/max"
GOES = ("trained", "evicted", "validated", "left_out")


def steps_of(run_dir):
    return [row for row in metrics(run_dir) if "judge/infra_rate" in row]


def balances(step):
    """Return whether a step's account explains every token."""
    gone = sum(step[f"rollout/{name}_tokens_total"] for name in GOES)
    there = step["rollout/generated_tokens_total"] + step["rollout/restored_tokens"]
    return there == gone + step["rollout/in_flight_tokens"]


def overrides(world, folder, mode, *more):
    return [
        *world.overrides(folder),
        f"coding.mode={mode}",
        "data.max_response_length=64",
        "coding.sandbox.name=tests.faults:FailsOften",
        *more,
    ]


def check(steps, n_steps, max_staleness):
    assert [step["training/global_step"] for step in steps] == n_steps
    for step in steps:
        assert 0 <= step[WORST] <= max_staleness
        assert balances(step)
        assert 0 <= step["rollout/queued_tokens"] <= step["rollout/in_flight_tokens"]
        assert 0.8 < step["rollout_corr/rollout_is_mean"] < 1.2
        assert step["judge/infra_rate"] < 0.5
    trained = sum(step["rollout/trained_tokens"] for step in steps)
    assert trained == steps[-1]["rollout/trained_tokens_total"]


def test_samples_are_within_the_bound_until_the_judge_is_gone_which_ends_the_run(
    world, tmp_path, in_ray
):
    gone = tmp_path / "gone"
    run = ["+coding.sandbox.kwargs.every=4", f"+coding.sandbox.kwargs.gone={gone}"]
    run += ["trainer.save_freq=-1", "coding.max_staleness=1"]
    after = threading.Thread(target=touch_after, args=(gone, tmp_path, 2), daemon=True)
    after.start()
    with pytest.raises(TrainingError, match=r"could not be judged, more than") as caught:
        train("grpo", overrides(world, tmp_path, "colocate_async", *run))
    assert "the judge is gone" in str(caught.value) or "breaker" in str(caught.value)
    assert "\n" not in str(caught.value)
    steps = steps_of(tmp_path)[:2]
    check(steps, [1, 2], 1)
    assert steps[1][WORST] == 1  # of the batch that was asked for ahead
    lost = {row.sample.rpartition("_")[0] for row in read_ungradable(tmp_path)}
    kept = {row.sample.split("_")[0] for row in read_all_rollouts(tmp_path) if row.split == "train"}
    assert lost & kept  # the judged samples of groups of which one could not be judged


def touch_after(path, run_dir, n_steps):
    while len(steps_of(run_dir)) < n_steps:
        time.sleep(0.1)
    path.touch()


@pytest.mark.soak
def test_a_resumed_run_keeps_the_bound_and_generates_again_what_was_ahead(world, tmp_path, in_ray):
    run = ["+coding.sandbox.kwargs.every=4", "trainer.save_freq=2", "coding.max_staleness=1"]
    asked = overrides(world, tmp_path, "colocate_async", *run, "trainer.test_freq=2")
    train("grpo", [*asked, "trainer.total_training_steps=2"])
    first = steps_of(tmp_path)
    check(first, [1, 2], 1)
    assert (
        first[0]["rollout/validated_tokens_total"] == 0 < first[1]["rollout/validated_tokens_total"]
    )
    in_ray()

    train("grpo", [*asked, "trainer.total_training_steps=4", "coding.force=true"])
    resumed = steps_of(tmp_path)[2:]
    check(resumed, [3, 4], 1)
    assert resumed[0]["rollout/restored_tokens"] <= first[-1]["rollout/queued_tokens"]


@pytest.mark.soak
def test_generation_goes_on_beside_training(world, tmp_path, in_ray):
    asked = ["+coding.sandbox.kwargs.every=9", "trainer.save_freq=3", "coding.max_staleness=2"]
    asked.append("trainer.total_training_steps=3")
    train("grpo", overrides(world, tmp_path, "separate_async", *asked, "trainer.test_freq=3"))
    check(steps_of(tmp_path), [1, 2, 3], 2)
