"""This package's reward manager for your own `python -m verl.trainer.main_ppo`:

    reward.reward_manager.source=importlib reward.reward_manager.name=CodeRewardManager
    reward.reward_manager.module.path=pkg://coding_model_project.verl_reward

`docs/verl-reward.md` describes the optional keys under `+coding.`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from types import FrameType
from typing import Any

from coding_model_project.errors import CodingModelError, ConfigError

_RESOLVES = "resolve_reward_manager_cls"
"""verl's function that looks the class up in its task runner, before it starts the rollout's engines."""
_IN_WORKER = "load_reward_manager"
"""verl's function that calls it in the workers."""


def __getattr__(name: str) -> Any:
    """Return the manager once the configuration is known to be right.

    verl hands the configuration only to the workers, whose deaths it does not notice. So the check looks
    at that of the function which resolves the class, where a fault ends the run in one line. The trainer,
    which decides what becomes of a sample that could not be judged, is found there too.
    """
    if name != "CodeRewardManager":
        raise AttributeError(name)
    frames = list(_frames())
    for frame in frames:
        if frame.f_code.co_name == _RESOLVES:
            in_worker = any(one.f_code.co_name == _IN_WORKER for one in frames)
            try:
                _begin(frame.f_locals["config"], None if in_worker else frames)
            except CodingModelError as error:
                raise error.with_traceback(None) from None
    return _manager()


def _frames() -> Iterator[FrameType]:
    frame = sys._getframe(1)
    while (above := frame.f_back) is not None:
        yield above
        frame = above


def _begin(config: Any, frames: list[FrameType] | None) -> None:
    """Check the configuration, and in verl's task runner prepare its trainer.

    Args:
        frames: those of the task runner; None in a worker.
    """
    from coding_model_project.configs.schema import OnUngradable
    from coding_model_project.verl_ext.rewards.own_recipe import settings

    _, on_ungradable = settings(config)
    if frames is None:
        return
    _say_who_judges(config)
    base = sys.modules.get("verl.trainer.ppo.v1.trainer_base")
    owners = [frame.f_locals.get("self") for frame in frames]
    trainer = next((one for one in owners if base and isinstance(one, base.PPOTrainer)), None)
    if trainer is not None:
        from coding_model_project.verl_ext.trainers.judged_trainer import attach

        attach(trainer, on_ungradable)
    elif on_ungradable is not OnUngradable.drop:
        raise ConfigError(
            f"coding.on_ungradable={on_ungradable}: only trainers of trainer.v1 know it; start "
            "verl.trainer.main_ppo, or set +coding.on_ungradable=drop"
        )


@cache
def _manager() -> type:
    from coding_model_project.integrations.verl import tests_in as read_tests
    from coding_model_project.verl_ext.rewards import own_recipe

    class CodeRewardManager(own_recipe.AnyRecipeManager):
        tests_in = staticmethod(read_tests)

    return CodeRewardManager


def _say_who_judges(config: Any) -> None:
    """Print which rows another scorer gets, if the configuration has one."""
    own, url = config.reward.custom_reward_function.path, config.reward.sandbox_fusion.url
    if own or url:
        scorer = f"reward.custom_reward_function.path={own}" if own else "verl's own scorer"
        line = f"CodeRewardManager runs the tests of rows that have some; {scorer} scores all other rows"
        if url:
            line += "; tests run on reward.sandbox_fusion.url only with +coding.sandbox.urls=[URL]"
        print(line)  # noqa: T201
