"""The smallest world that verl trains in: four problems and models with random weights."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.data.training.pairs import Pair, pair_rows
from coding_model_project.data.training.rows import rl_rows, sft_rows, write_rows
from coding_model_project.data.training.samples import Sample
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.types import Call, ErrorType, Problem, Test

N_PROBLEMS = 4


@dataclass(frozen=True)
class World:
    root: Path

    def overrides(self, run_dir: Path, recipe: str = "grpo", model: str = "model") -> list[str]:
        """Return overrides that make a recipe's CPU profile end within seconds."""
        shared = [
            "hardware=cpu",
            f"coding.run_dir={run_dir}",
            "coding.dataset=null",
            f"coding.problems=[{self.root}/problems.jsonl]",
            "coding.min_memory_gb=1",
            f"data.train_files={self.root}/{recipe}.parquet",
            f"data.val_files={self.root}/{recipe}.parquet",
            f"data.train_batch_size={N_PROBLEMS}",
        ]
        if recipe == "dpo":
            return [*shared, "data.micro_batch_size_per_gpu=2", f"model.path={self.root}/{model}"]
        if recipe == "sft":
            return [*shared, f"model.path={self.root}/{model}", "data.micro_batch_size_per_gpu=4"]
        return [
            *shared,
            f"actor_rollout_ref.model.path={self.root}/{model}",
            "actor_rollout_ref.actor.ppo_mini_batch_size=4",
            "actor_rollout_ref.rollout.n=4",
            "data.max_response_length=16",
            "trainer.test_freq=-1",
            "trainer.val_before_train=false",
        ]


@pytest.fixture
def popen() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    """`subprocess.Popen`, whose processes end with the test: leftovers would slow all later tests."""
    with ExitStack() as started:

        def start(*command: Any, **options: Any) -> subprocess.Popen[Any]:
            process = subprocess.Popen(*command, **options)
            started.callback(process.wait)
            started.callback(process.kill)
            return process

        yield start


_ray = ExitStack()
"""Ends the shared session; empty while there is none."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End Ray's session after the last test in it: other tests count this process's children."""
    try:
        yield  # its fixtures end before: Ray starts anew for whoever asks it for something
    finally:
        if "in_ray" not in getattr(nextitem, "fixturenames", ()):
            _ray.close()


@pytest.fixture
def in_ray(cpu_platform, request):
    """One Ray session for all trainings that follow each other here: starting it takes as long as a short
    run. Afterwards the training rank's slot is free for the next one, and at a call before that."""
    import ray
    from ray import cloudpickle

    from coding_model_project.verl_ext.cluster import forkserver
    from coding_model_project.verl_ext.cluster.session import start_ray
    from coding_model_project.verl_ext.trainers.grpo import plain

    if not ray.is_initialized():
        python = _ray.enter_context(forkserver.running())
        start_ray(plain(compose_recipe("grpo", ["hardware=cpu"])), python)
        _ray.callback(ray.shutdown)
    cloudpickle.register_pickle_by_value(request.module)  # no worker can import a test
    yield _free_ranks
    _free_ranks()


def _free_ranks() -> None:
    from ray.util import placement_group_table, remove_placement_group
    from ray.util.placement_group import PlacementGroup

    for key, group in placement_group_table().items():
        if group["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(_id(key)))


def _id(key: str):
    from ray._raylet import PlacementGroupID

    return PlacementGroupID(bytes.fromhex(key))


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def tool_caller(tmp_path_factory, cpu_platform) -> Path:
    """A model that has seen shell tasks solved by tool calls."""
    from tests.end_to_end.shell_world import by_tools, taught_model

    folder = tmp_path_factory.mktemp("tool_caller") / "model"
    taught_model(folder, by_tools)
    return folder


def make_world(root: Path) -> World:
    """Write problems, rows and models into a folder."""
    problems = [problem(number) for number in range(N_PROBLEMS)]
    write_problems(root / "problems.jsonl", problems)
    write_rows(root / "grpo.parquet", rl_rows(problems, PromptStyle.bare), trains=True)
    write_rows(root / "sft.parquet", sft_rows(problems, PromptStyle.bare), trains=True)
    write_rows(root / "dpo.parquet", pair_rows(pairs(problems), PromptStyle.bare), trains=True)
    _random_model(root / "model", hidden_size=128)
    _random_model(root / "wide", hidden_size=512)
    return World(root)


def problem(number: int) -> Problem:
    tests = tuple(
        Test(input=Call(function="solve", args=(x,)), expected=x + number)
        for x in (1000 * number, 1, 2)
    )
    return Problem(
        id=f"mine/{number}",
        statement=f"Define solve(x), which adds {number}.",
        tests=tests,
        gold=(f"def solve(x):\n    return x + {number}\n",),
        split="train",
    )


def pairs(problems: list[Problem]) -> list[Pair]:
    """Three for each problem, of unequal lengths."""
    wrong = ("return x", "y = x * 2\n    return y - 1", "return [x for _ in range(9)][-1]")

    def sample(one: Problem, code: str, error: ErrorType | None = None) -> Sample:
        return Sample(problem=one, completion=code, code=code, error=error, origin="eval")

    return [
        Pair(
            chosen=sample(one, one.gold[0]),
            rejected=sample(one, f"def solve(x):\n    {body}\n", ErrorType.wrong_answer),
            similarity=0.5,
        )
        for one in problems
        for body in wrong
    ]


def _random_model(out: Path, hidden_size: int) -> None:
    import torch

    from coding_model_project.synthetic.tiny_model import (
        TinyModelConfig,
        new_model,
        train_tokenizer,
    )

    torch.manual_seed(0)
    config = TinyModelConfig(hidden_size=hidden_size, intermediate_size=2 * hidden_size, layers=1)
    tokenizer = train_tokenizer(iter(problem(n).gold[0] for n in range(N_PROBLEMS)), 300)
    model = new_model(tokenizer, config)
    # Some models have several, which verl's own exports forget.
    ends = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.config.eos_token_id = model.generation_config.eos_token_id = ends
    model.generation_config.update(do_sample=True, temperature=0.7)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
