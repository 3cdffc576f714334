"""From a configuration to a grader that is ready to judge: the one place where the parts meet."""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.graders.base import Grader
from coding_model_project.graders.cache import CachedGrader
from coding_model_project.graders.execution import ExecutionGrader
from coding_model_project.sandbox.base import Sandbox


def make_sandbox(config: Mapping[str, Any]) -> Sandbox:
    """The sandbox that `coding.sandbox` describes, not yet started.

    Raises:
        ConfigError: `coding.sandbox.name` is neither known nor an importable "module:Class".
    """
    name = str(config["name"])
    if name == "embedded":
        from coding_model_project.sandbox.embedded import EmbeddedSandbox

        return EmbeddedSandbox(workers=config["workers"], min_tier=str(config["min_tier"]))
    module, _, attribute = name.partition(":")
    try:
        sandbox_class = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f'coding.sandbox.name={name}: not "embedded" and not importable as '
            f'"package.module:Class" ({error})'
        ) from error
    return sandbox_class(**config["kwargs"])


@asynccontextmanager
async def open_grader(coding: Mapping[str, Any]) -> AsyncIterator[Grader]:
    """Start the judge that the resolved `coding:` subtree describes; stops it on leaving.

    Sparse rewards need only know whether a program passes, so judging stops at the first failure;
    dense ones run every hidden test, since stopping early would bias the pass fraction.
    """
    bare = coding["prompt"] == "bare"
    stop_early = coding["reward"]["kind"] == "sparse"
    # Programs wait for their turn here and not in the sandbox, so that a verdict's judge_s is the time
    # spent on it.
    at_once = coding["sandbox"]["workers"] or len(os.sched_getaffinity(0))
    async with make_sandbox(coding["sandbox"]) as sandbox:
        grader = ExecutionGrader(sandbox, bare=bare, stop_early=stop_early, max_concurrency=at_once)
        yield CachedGrader(grader, bare=bare)
