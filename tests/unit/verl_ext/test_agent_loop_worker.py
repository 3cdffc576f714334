"""Our agent-loop worker beside verl's: the steps that it leaves out change no result."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from coding_model_project.errors import CodingModelError
from coding_model_project.grading.brief import plain_verdict
from coding_model_project.runs.rollouts import read_ungradable
from coding_model_project.types import TestResult, Verdict
from tests.unit.verl_ext.test_repair_loop import (
    PROBLEM,
    RIGHT,
    ROW,
    WRONG,
    config,
    episode,
    tokenizer,
)

__all__ = ["config", "tokenizer"]

pytestmark = [pytest.mark.verl, pytest.mark.sandbox]

ANEW = {"generated_at", "graded_at", "judge_s", "cached", "public_judge_s"}
"""Numbers of a sample that differ each time it is judged."""

VERDICT = plain_verdict(
    Verdict(
        problem_id=PROBLEM.id,
        code="true",
        extraction="none",
        results=(TestResult(error=None),),
        n_tests=1,
        comparison="exact",
        sandbox="room",
        grader_version="1",
    )
)


class Method:
    """A method of an actor in this process: arguments and result go through pickle, as Ray sends them."""

    def __init__(self, method):
        self.method = method

    async def remote(self, *arguments, **named):
        arguments, named = pickle.loads(pickle.dumps((arguments, named)))
        found = self.method(*arguments, **named)
        found = await found if hasattr(found, "__await__") else found
        return pickle.loads(pickle.dumps(found))


class Actor:
    def __init__(self, actor):
        self.actor = actor

    def __getattr__(self, name):
        return Method(getattr(self.actor, name))


def worker_of(config, tokenizer):
    """Return our worker with a real reward worker, but without TransferQueue."""
    from coding_model_project.verl_ext.loops.worker import CodingAgentLoopWorker
    from coding_model_project.verl_ext.rewards.placement import RewardLoopWorker
    from coding_model_project.verl_ext.rewards.reward_manager import CodeRewardManager

    judging = object.__new__(RewardLoopWorker)
    judging.config, judging.reward_manager = config, CodeRewardManager(config, tokenizer)
    worker = object.__new__(CodingAgentLoopWorker)
    worker.config, worker.processor, worker.mm_processor_kwargs = config, None, {}
    worker.reward_loop_worker_handles = [Actor(judging)]
    return worker


def output_of(prompt, response, turns=2, **extra):
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    return AgentLoopOutput(
        prompt_ids=prompt, response_ids=response, response_mask=[1] * len(response),
        num_turns=turns, metrics=AgentLoopMetrics(),
        extra_fields={"min_global_steps": 1, "turn_scores": [], "tool_rewards": [], **extra},
    )  # fmt: skip


def told(sample):
    """Return what is the same each time a sample is judged."""
    if isinstance(sample, dict):
        return {key: told(value) for key, value in sample.items() if key not in ANEW}
    return [told(value) for value in sample] if isinstance(sample, list) else sample


async def judged(worker, outputs, row, by_us):
    """Return a trajectory's last output with its score, or the class and text of the error."""
    from ray import cloudpickle

    worker._judged_by_us = by_us
    outputs = cloudpickle.loads(cloudpickle.dumps(outputs))
    try:
        await worker._compute_score(outputs, kwargs=row)
    except CodingModelError as error:
        return type(error), str(error)
    last = outputs[-1].model_dump(exclude_unset=True)
    assert last["metrics"].pop("compute_score") > 0
    assert all(output.reward_score is None for output in outputs[:-1])
    info = last["extra_fields"].pop("reward_extra_info")
    kinds = {key: type(value) for key, value in info.items()}
    info["sample"] = json.loads(info["sample"])
    return {**last, "info": told(info), "kinds": kinds}


@pytest.fixture
def cases(tokenizer):
    """Return trajectories by name, each a list of outputs."""

    def ids(text):
        return tokenizer(text)["input_ids"]

    prompt, eos, pad = ids(PROBLEM.statement), [tokenizer.eos_token_id], [tokenizer.pad_token_id]
    opening = ids("<|im_start|>assistant\n")
    right, wrong, block = ids(RIGHT) + eos, ids(WRONG) + eos, ids(f"```python\n{RIGHT}```") + eos
    full = (block + ids("x = 1\n") * 400)[:400]
    observed = wrong + ids("<|im_start|>user\nno<|im_end|>\n") + opening
    repaired = observed + right
    attempts = [
        {"start": 0, "end": len(wrong), "public_error": "wrong_answer", "observation": "no"},
        {"start": len(observed), "end": len(repaired), "public_error": None, "observation": None},
    ]
    command = {
        "command": "true",
        "exit_code": 0,
        "observation": "",
        "command_s": 0.1,
        "reply_s": 1.0,
    }
    episode = {
        "ending": "done",
        "replies": [{"start": 0, "end": 3, **command}],
        "verdict": VERDICT,
    }
    work = {
        "ending": "done", "exit_code": 0, "said": "bye", "agent_s": 1.0, "commands": 1,
        "command_s": 0.1, "turns": 2, "ignored": [], "conversations": 2, "generated_tokens": 390,
        "untrained_tokens": 3, "replies": [{"start": 0, "end": len(block)}], "verdict": VERDICT,
    }  # fmt: skip
    before = output_of(prompt * 9, right[:3])
    only = {
        "right": right,
        "wrong": wrong,
        "one block": block,
        "nothing": [],
        "only an end": eos,
        "an end in the middle": block[:9] + eos + opening + block[9:],
        "padding in the middle": block[:9] + pad * 3 + block[9:] + pad,
        "an id beyond the tokenizer's": [*block, 10**6],
        "full length": full,
    }
    return {name: [output_of(prompt, response)] for name, response in only.items()} | {
        "several turns": [output_of(prompt, repaired, 4)],
        "several turns, the last not found": [output_of(prompt, right, 4)],
        "repaired": [
            output_of(prompt, repaired, 4, attempts=[one | {"judge_s": 0.1} for one in attempts])
        ],
        "bash": [output_of(prompt, right, 4, bash_episode=episode)],
        "agent": [
            output_of(prompt * 9, right[:3], agent_work=None),
            output_of(prompt, block, 4, agent_work=work),
        ],
        "after a long prompt": [before, output_of(prompt, block)],
        "after a long response": [output_of(prompt, full), output_of(prompt * 9, block)],
    }


async def test_a_sample_is_judged_as_in_verls_batch_of_tensors(config, tokenizer, cases):
    """Shaping reads the answer's text and length; the row has fields that no judge reads."""
    run = config(
        "coding.reward.shaping.format_weight=0.25", "coding.reward.shaping.overlong_buffer=350",
        "coding.reward.check_public=true",
    )  # fmt: skip
    worker = worker_of(run, tokenizer)
    row = {**ROW, "data_source": "mine", "extra_info": {"index": 3}, "priority": 7}
    unknown = {**row, "reward_model": {"ground_truth": "mine/2"}}
    found = {}
    for name, outputs in [*cases.items(), ("unknown", cases["right"])]:
        given = unknown if name == "unknown" else row
        slow, found[name] = [await judged(worker, outputs, given, by_us) for by_us in (False, True)]
        assert found[name] == slow, name
    failed = {name for name, one in found.items() if isinstance(one, tuple)}
    assert failed == {"several turns, the last not found", "unknown"}
    acc = {name: one["info"]["acc"] for name, one in found.items() if name not in failed}
    assert {name for name, value in acc.items() if not value} == {
        "wrong", "nothing", "only an end", "an end in the middle"
    }  # fmt: skip
    assert found["right"]["reward_score"] > found["one block"]["reward_score"]
    lost = read_ungradable(Path(run.coding.run_dir))
    shown = [(one.step, one.problem, one.sample, one.error, one.reason) for one in lost]
    assert len(shown) == 4 and shown[0::2] == shown[1::2]  # as often, and with the same words


async def test_the_repair_loops_own_output_is_judged_alike(config, tokenizer):
    run = config()
    output, _ = await episode(run, tokenizer, WRONG, RIGHT)
    worker = worker_of(run, tokenizer)
    slow, fast = [await judged(worker, [output], ROW, by_us) for by_us in (False, True)]
    assert fast == slow and fast["info"]["repaired"] == 1.0


def test_a_reward_worker_does_not_import_the_trainer():
    """It imports the module of its class; the trainer's takes seconds and 100 MB more."""
    code = (
        "import sys; from coding_model_project.verl_ext.rewards import placement; "
        "sys.exit('verl.trainer.ppo.v1.trainer_base' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Server:
    """A rollout server that keeps what it was asked."""

    def __init__(self):
        self.asked = []

    async def generate(self, **request):
        from verl.workers.rollout.replica import TokenOutput

        self.asked.append(request["sampling_params"])
        return TokenOutput(token_ids=[1, 2], log_probs=[0.0, 0.0], extra_fields={"global_steps": 3})


def balanced(servers, client_cls=None, plugin=None):
    """Return verl's client of these servers, and the calls that its load balancer got."""
    from omegaconf import OmegaConf
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    calls = []

    class Balancer(GlobalRequestLoadBalancer):
        def acquire_server(self, request_id, **extra):
            calls.append("acquire")
            if plugin and "prompt_ids" not in extra:
                raise TypeError("acquire_server() missing 'prompt_ids'")
            return super().acquire_server(request_id)

        def release_server(self, server_id, request_id=None):
            calls.append("release")
            super().release_server(server_id)

        def require_acquire_fields(self):
            return ["prompt_ids"] if plugin else []

    class Local(Actor):
        """Handles of servers are compared, so nothing is pickled; `release` is not awaited."""

        def __getattr__(self, name):
            method = getattr(self.actor, name)

            def remote(*arguments, **named):
                found = method(*arguments, **named)

                async def answer():
                    return await found if hasattr(found, "__await__") else found

                return answer() if name != "release_server" else found

            return SimpleNamespace(remote=remote)

    handles = {f"server{number}": Local(server) for number, server in enumerate(servers)}
    rollout = {"name": "vllm", "router_config_path": plugin, "full_determinism": False}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
    balancer = Local(Balancer(handles))
    return (client_cls or LLMServerClient)(config=config, load_balancer_handle=balancer), calls


async def ask(client, **sampling):
    from coding_model_project.verl_ext.loops.worker import _Counting

    counting = _Counting(client, ids_only=True)
    await counting.generate("a", prompt_ids=[1], sampling_params=sampling)
    return counting.tokens


@pytest.mark.parametrize(
    ("servers", "fully_async", "plugin", "asked"),
    [
        (1, False, None, 1),
        (2, False, None, 3),
        (1, True, None, 3),  # verl adds and removes servers
        (1, False, "router.yaml", 3),  # of the user
    ],
)
async def test_only_verls_balancer_of_one_server_is_asked_once(servers, fully_async, plugin, asked):
    from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient

    from coding_model_project.verl_ext.loops.worker import _keep_the_only_server

    running = [Server() for _ in range(servers)]
    client, calls = balanced(running, FullyAsyncLLMServerClient if fully_async else None, plugin)
    await _keep_the_only_server(client)
    for _ in range(3):
        assert await ask(client, max_tokens=2) == 2
    assert calls.count("acquire") == asked
    assert sum(len(server.asked) for server in running) == 3


async def test_text_is_decoded_only_where_a_stop_string_needs_it():
    server = Server()
    client, _ = balanced([server])
    for sampling in ({"stop": ["x"]}, {"stop": []}, {"stop_token_ids": [3]}, {"detokenize": True}):
        await ask(client, **sampling)
    assert [one.get("detokenize") for one in server.asked] == [None, False, False, True]


@pytest.mark.parametrize(
    ("module", "ours"),
    [("verl_ext.rewards.reward_manager", True), ("verl_reward", False)],
)
def test_only_our_recipes_manager_gets_a_sample(monkeypatch, config, module, ours):
    """The manager for other people's recipes has the same name."""
    from coding_model_project.verl_ext.loops import worker

    run = config()
    run.reward.reward_manager.module.path = f"pkg://coding_model_project.{module}"

    def starts(self, config):
        self.config = config

    monkeypatch.setattr(worker._Worker, "__init__", starts)
    assert worker.CodingAgentLoopWorker(run)._judged_by_us is ours


class Queue:
    """TransferQueue's two functions, which note what is put; the first put of samples may fail."""

    def __init__(self, fails=False):
        self.put, self.fails = [], fails

    async def async_kv_batch_put(self, *, keys, fields, tags, partition_id):
        if self.fails:
            self.fails = False
            raise RuntimeError("no storage")
        self.put.append((keys, sorted(fields.keys()), tags, partition_id))

    async def async_kv_put(self, *, key, partition_id, tag):
        self.put.append((key, tag, partition_id))


async def send(monkeypatch, fails=False):
    """Send two prompts' samples as verl's worker does, and return what the queue got."""
    import torch

    from coding_model_project.verl_ext.loops import worker

    queue = Queue(fails)
    monkeypatch.setattr(worker, "tq", queue)
    by_prompt = worker._ByPrompt()
    scored = {"prompts": torch.tensor([1, 2]), "rm_scores": torch.tensor([0.0])}
    longer = {"prompts": torch.tensor([1, 2]), "rm_scores": torch.tensor([0.0, 1.0])}
    unscored = {"prompts": torch.tensor([1, 2])}
    for key, fields in [
        ("a_0_0", scored),
        ("b_0_0", scored),
        ("a_1_0", unscored),
        ("a_2_0", longer),
    ]:
        await by_prompt.async_kv_batch_put(
            keys=[key], fields=[fields], tags=[{"of": key}], partition_id="train"
        )
    assert queue.put == []
    for status in ("finished", "failure"):  # verl's worker puts the second where the first fails
        try:
            await by_prompt.async_kv_put(key="a", partition_id="train", tag={"status": status})
            return queue.put
        except RuntimeError:
            assert fails
    raise AssertionError


async def test_samples_of_a_prompt_are_put_together_before_its_status(monkeypatch):
    *samples, status = await send(monkeypatch)
    assert status == ("a", {"status": "finished"}, "train")
    by_keys = {tuple(keys): (fields, tags) for keys, fields, tags, _ in samples}
    assert by_keys == {
        ("a_1_0",): (["prompts"], [{"of": "a_1_0"}]),
        ("a_0_0", "a_2_0"): (["prompts", "rm_scores"], [{"of": "a_0_0"}, {"of": "a_2_0"}]),
    }


async def test_a_prompt_whose_samples_cannot_be_put_has_failed(monkeypatch):
    *samples, status = await send(monkeypatch, fails=True)
    assert status == ("a", {"status": "failure"}, "train")
    assert samples == []
