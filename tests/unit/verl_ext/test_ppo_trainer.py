"""Asynchronous training's replay buffer over a queue in memory: samples kept or dropped, ends of runs."""

from __future__ import annotations

import socket
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import ConfigError, SandboxError, TrainingError
from coding_model_project.harbor.harbor_config import NotIsolatedError
from coding_model_project.runs.rollouts import Ungradable, note
from tests.answering import answering

pytestmark = pytest.mark.verl


N = 2
"""Number of samples of a group."""


class Queue:
    """The part of TransferQueue that the buffer calls: keys with tags, and the tokens of each sample."""

    def __init__(self):
        self.tags = {}
        self.numbers = count()

    def group(self, step, judged, status=None):
        """Add a group that this step requested, with the given number of judged samples."""
        uid = f"g{next(self.numbers)}"
        status = status or ("finished" if judged == N else "failure")
        self.tags[uid] = {"is_prompt": True, "status": status, "global_steps": step}
        for session in range(judged):
            self.tags[f"{uid}_{session}_0"] = {"status": "success"}
        return uid

    def tokens(self, keys, _partition):
        """As TransferQueue: a sample is listed before its tokens can be read."""
        if any(self.tags.get(key.split("_")[0], {}).get("status") == "running" for key in keys):
            raise ValueError("Some fields are not ready in all the requested keys!")
        return [5] * len(keys)

    def kv_list(self, *_):
        return {"train": {key: dict(tag) for key, tag in self.tags.items()}}

    def kv_clear(self, *, partition_id, keys):
        for key in keys:
            self.tags.pop(key, None)


@pytest.fixture
def queue(monkeypatch):
    from verl.trainer.ppo.v1 import replay_buffer

    from coding_model_project.verl_ext.trainers import sampling

    queue = Queue()
    monkeypatch.setattr(replay_buffer, "tq", queue)
    monkeypatch.setattr(sampling, "model_tokens", queue.tokens)
    return queue


def buffer_of(tmp_path, *, refill, allowed=0.5, max_staleness=1, groups_per_step=4):
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

    from coding_model_project.verl_ext.trainers.guards import Outages
    from coding_model_project.verl_ext.trainers.sampling import CodingBuffer

    made = ReplayBufferAsync(
        trainer_mode="colocate_async", trainer_config={}, sampler_kwargs={}, poll_interval=0.0,
        max_off_policy_threshold=max_staleness + 1, max_off_policy_strategy="drop", refill_fn=refill,
    )  # fmt: skip
    evicted = []
    buffer = CodingBuffer.in_place_of(
        made, outages=Outages(tmp_path, allowed), groups_per_step=groups_per_step,
        samples_per_group=N, on_evicted=evicted.append,
    )  # fmt: skip
    return buffer, evicted


def test_judged_samples_of_a_group_with_a_failure_are_trained_on(queue, tmp_path):
    buffer, evicted = buffer_of(tmp_path, refill=None)
    whole, part = queue.group(step=3, judged=N), queue.group(step=3, judged=1)
    batch, metrics = buffer.sample(global_steps=3, partition_id="train", batch_size=2)
    assert sorted(batch.keys) == [f"{whole}_0_0", f"{whole}_1_0", f"{part}_0_0"]
    assert metrics == {}
    assert evicted == []


def test_what_is_too_old_is_dropped_whether_a_session_failed_or_not(queue, tmp_path):
    asked = []

    def refill(n):
        asked.append(n)
        for _ in range(n):
            queue.group(step=5, judged=N)

    buffer, evicted = buffer_of(tmp_path, refill=refill)
    queue.group(step=3, judged=N)
    queue.group(step=3, judged=1)
    young = queue.group(step=4, judged=N)
    batch, metrics = buffer.sample(global_steps=5, partition_id="train", batch_size=3)
    assert asked == [2]
    assert f"{young}_0_0" in batch.keys
    assert metrics["training/off_policy/evicted_samples"] == 2
    assert sum(evicted) == 3 * 5  # tokens


@pytest.mark.parametrize("allowed", [0.5, 1.0])
def test_an_open_breaker_ends_the_run_instead_of_asking_for_ever(queue, tmp_path, allowed):
    def refill(n):
        assert len(queue.tags) < 100
        for _ in range(n):
            queue.group(step=1, judged=0)

    buffer, _ = buffer_of(tmp_path, refill=refill, allowed=allowed)
    refill(4)
    with pytest.raises(SandboxError, match=r"could not be judged|groups of samples failed"):
        buffer.sample(global_steps=1, partition_id="train", batch_size=4)


def test_few_failed_groups_are_replaced(queue, tmp_path):
    buffer, _ = buffer_of(tmp_path, refill=lambda n: [queue.group(1, N) for _ in range(n)])
    failed = queue.group(step=1, judged=0)
    for _ in range(3):
        queue.group(step=1, judged=N)
    batch, metrics = buffer.sample(global_steps=1, partition_id="train", batch_size=4)
    assert len(batch.keys) == 4 * N
    assert buffer.failed == {failed}
    assert metrics["training/rollout_failure/evicted_samples"] == 1


def test_the_share_of_failed_groups_is_that_of_the_step_and_not_of_a_mini_batch(queue, tmp_path):
    def refill(n):
        return [queue.group(1, N) for _ in range(n)]

    buffer, _ = buffer_of(tmp_path, refill=refill, allowed=0.2, groups_per_step=8)
    queue.group(step=1, judged=0)
    batch, _ = buffer.sample(global_steps=1, partition_id="train", batch_size=1)
    assert len(batch.keys) == N


def test_a_group_dropped_by_integrity_excuses_no_other_loss(queue, tmp_path, monkeypatch):
    """Of two samples of a trained group one was lost to an outage; a replaced group was not isolated."""
    from coding_model_project.verl_ext.trainers import ppo_trainer
    from coding_model_project.verl_ext.trainers.guards import Outages
    from coding_model_project.verl_ext.trainers.ppo_trainer import (
        SeparateAsyncTrainer,
        TokenAccount,
    )

    trainer = SeparateAsyncTrainer.__new__(SeparateAsyncTrainer)
    rollout = {"rollout": {"n": N}}
    sizes = {"data": {"train_batch_size": 1}, "actor_rollout_ref": rollout}
    trainer.config = OmegaConf.create(sizes)
    trainer.parameter_sync_step, trainer._groups = 1, set()
    trainer._outages, trainer._account = Outages(tmp_path, 0.2), TokenAccount()
    trainer.replay_buffer = SimpleNamespace(failed={"g1"})
    monkeypatch.setattr(ppo_trainer, "model_tokens", lambda keys, _: [5] * len(keys))
    lost = Ungradable(
        step=1, problem="p", sample="", error=NotIsolatedError.__name__, reason="r", at=1.0
    )
    for session in range(N):
        note(tmp_path, replace(lost, sample=f"g1_{session}"))
    batch = SimpleNamespace(keys=["g0_0_0"], partition_id="train")
    with pytest.raises(SandboxError, match="50% of this step's samples could not be judged"):
        trainer._balance_batch(batch, {})


def test_only_finished_groups_that_wait_are_queued(queue, tmp_path):
    buffer, _ = buffer_of(tmp_path, refill=None)
    queue.group(step=1, judged=N)
    queue.group(step=1, judged=1)
    queue.group(step=1, judged=1, status="running")
    queue.tags["trained_0_0"] = {"status": "success"}  # its prompt is gone, its metrics are not yet
    assert buffer.queued_tokens() == 3 * 5


def test_the_asynchronous_trainers_sample_from_it(queue, tmp_path):
    from coding_model_project.launch.compose import compose_recipe
    from coding_model_project.verl_ext.trainers.grpo import plain
    from coding_model_project.verl_ext.trainers.guards import Outages
    from coding_model_project.verl_ext.trainers.ppo_trainer import (
        ColocateAsyncTrainer,
        TokenAccount,
    )

    trainer = ColocateAsyncTrainer.__new__(ColocateAsyncTrainer)
    asked = ["hardware=cpu", "coding.mode=colocate_async", f"coding.run_dir={tmp_path}"]
    trainer.config = plain(compose_recipe("grpo", asked))
    trainer.trainer_mode = trainer.MODE
    trainer._outages, trainer._account = Outages(tmp_path, 0.5), TokenAccount()
    trainer._add_prompts_to_generate = lambda n: [queue.group(1, 0) for _ in range(n)]
    buffer = trainer._build_replay_buffer()
    queue.group(step=1, judged=0)
    with pytest.raises(SandboxError, match="could not be judged"):
        buffer.sample(global_steps=1, partition_id="train", batch_size=4)


def test_a_queue_of_another_number_of_storage_units_names_the_key(queue, monkeypatch):
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from coding_model_project.verl_ext.trainers.ppo_trainer import ColocateAsyncTrainer

    def load(_):  # TransferQueue's own words
        raise ValueError("Storage unit count mismatch: checkpoint has 8, current system has 2.")

    monkeypatch.setattr(PPOTrainer, "_load_checkpoint", load)
    trainer = ColocateAsyncTrainer.__new__(ColocateAsyncTrainer)
    key = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
    trainer.config = OmegaConf.create()
    OmegaConf.update(trainer.config, key, 2)
    with pytest.raises(ConfigError, match=rf"^{key}=2: .* checkpoint has 8, .* set the key to"):
        trainer._load_checkpoint()


# Token counts of rollout servers that fail or are down.


@pytest.fixture
def trainers(cpu_platform):
    from coding_model_project.verl_ext.trainers import ppo_trainer

    return ppo_trainer


def test_a_server_that_does_not_answer_is_named_in_one_line(trainers):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(TrainingError) as caught:
            trainers.generated_tokens([address])
    assert f"rollout server {address} does not answer" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def server():
    """A server whose next answers are given statuses; then it has counted 5 tokens."""
    statuses = []

    def answer(*_):
        counted = b'vllm:generation_tokens_total{engine="0"} 5.0\n'
        return statuses.pop(0) if statuses else 200, {}, counted

    with answering(answer) as url:
        yield url.removeprefix("http://"), statuses


def test_a_server_that_fails_once_is_asked_again(trainers, server):
    address, statuses = server
    assert trainers.generated_tokens([address, address]) == 10
    statuses[:] = [503]
    assert trainers.generated_tokens([address, address]) == 10
    statuses[:] = [503] * 20
    with pytest.raises(TrainingError, match=r"does not answer \(.*503"):
        trainers.generated_tokens([address])


def test_what_is_not_accounted_for_is_in_flight(trainers) -> None:
    account = trainers.TokenAccount(restored=10, trained=50, evicted=7)
    metrics = account.metrics(generated=100, queued=20, validated=5, left_out=3)
    assert metrics["rollout/in_flight_tokens"] == 100 + 10 - 50 - 7 - 5 - 3
    assert metrics["rollout/queued_tokens"] == 20


def test_a_token_that_is_counted_twice_ends_the_run(trainers) -> None:
    with pytest.raises(TrainingError, match=r"90 tokens were trained on.* and 20 are queued"):
        trainers.TokenAccount(trained=90).metrics(generated=100, queued=20, validated=0, left_out=0)


def test_without_the_servers_counters_there_is_no_sum(trainers) -> None:
    metrics = trainers.TokenAccount(trained=9).metrics(
        generated=None, queued=1, validated=0, left_out=0
    )
    assert metrics["rollout/trained_tokens_total"] == 9
    assert "rollout/in_flight_tokens" not in metrics


# A stop that is requested between two steps, such as during a validation, loses no trained step.


@pytest.fixture
def trainer(cpu_platform, tmp_path):
    from coding_model_project.verl_ext.trainers import ppo_trainer

    class Trainer(ppo_trainer.SyncTrainer):
        def __init__(self):
            self._log_dir, self._outages = tmp_path, None
            self.saved, self.ended, self.timing_raw = [], [], {}
            self.global_steps, self.total_training_steps = 1, 10

        def _save_checkpoint(self):
            self.saved.append(self.global_steps)

        def _fatal(self, reason):
            self.ended.append(reason)

        def _servers(self):
            return []

        def _sync_deadline(self):
            return self.checkpoint_manager

    class Nothing:
        def update_weights(self, _): ...
        def __enter__(self): ...
        def __exit__(self, *_): ...

    made = Trainer()
    made.checkpoint_manager = Nothing()
    return made


def test_before_the_first_step_there_is_nothing_to_save(trainer, tmp_path):
    (tmp_path / "stop").touch()
    trainer.on_step_begin()
    assert trainer.ended == ["stopped on request before the first step"]


def test_between_two_steps_the_next_one_ends_with_a_checkpoint(trainer, tmp_path):
    trainer.on_step_begin()
    trainer.on_step_end()
    (tmp_path / "stop").touch()  # during the validation after the step
    trainer.global_steps += 1
    trainer.on_step_begin()
    trainer.on_step_end()
    assert trainer.ended == []
    assert trainer.saved == [2]
    assert trainer.total_training_steps == 2
