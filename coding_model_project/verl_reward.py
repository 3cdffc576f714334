"""This package's reward manager for your own `python -m verl.trainer.main_ppo`:

    reward.reward_manager.source=importlib reward.reward_manager.name=CodeRewardManager
    reward.reward_manager.module.path=pkg://coding_model_project.verl_reward

`docs/verl-reward.md` describes the optional keys under `+coding.`.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from coding_model_project.errors import CodingModelError

_RESOLVES = "resolve_reward_manager_cls"
"""verl's function that looks the class up in its task runner, before it starts the rollout's engines."""


def __getattr__(name: str) -> Any:
    """Return the manager once the configuration is known to be right.

    verl hands the configuration only to the workers, whose deaths it does not notice. So the check looks
    at that of the function which resolves the class, where a fault ends the run in one line.
    """
    if name != "CodeRewardManager":
        raise AttributeError(name)
    from coding_model_project.verl_ext.rewards import own_recipe

    frame = sys._getframe()
    while (above := frame.f_back) is not None:
        frame = above
        if frame.f_code.co_name == _RESOLVES:
            try:
                _say_who_judges(frame.f_locals["config"])
                own_recipe.settings(frame.f_locals["config"])
            except CodingModelError as error:
                raise error.with_traceback(None) from None
    return _manager()


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
