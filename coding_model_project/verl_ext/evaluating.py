"""Evaluation with any back end: vLLM in this process, a server, or verl's rollout."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec

from omegaconf import DictConfig

from coding_model_project.configs.schema import BaselineConfig, coding_of, evaluation_settings
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.backends.generation import Backend
from coding_model_project.evaluation.evaluate import evaluate
from coding_model_project.evaluation.evaluation_config import EvaluationMode
from coding_model_project.evaluation.results import Metrics
from coding_model_project.evaluation.settings import simple_backend
from coding_model_project.extras import extra
from coding_model_project.grading.judge import make_sandbox
from coding_model_project.isolation import processes
from coding_model_project.launch.checks import checks
from coding_model_project.launch.device import count_gpus, prepare_environment
from coding_model_project.reports import write_report
from coding_model_project.runs.resuming import with_local_inputs
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.sandbox_config import SandboxConfig

_MODEL_KEY = "coding.evaluation.model"


def run(config: DictConfig, *, command: Sequence[str], say: Callable[[str], None]) -> Metrics:
    """Run the evaluation of `coding.evaluation` in the main thread; see `evaluation.evaluate`.

    `eval run`, `recipes.baseline` and `src/phase0_eval.py` call this function. With a server it needs
    neither verl nor vLLM.

    Raises:
        ConfigError: the configuration is wrong, or the model does not exist.
        ClusterError: the cluster that `coding.evaluation.cluster` names cannot be used.
    """
    coding = coding_of(config)
    assert isinstance(coding, BaselineConfig)
    settings = evaluation_settings(coding)  # first, so that a wrong key needs no network
    local = config
    if coding.evaluation.base_url is None:
        local = with_local_inputs(config, _MODEL_KEY)
        checks.check_model(_MODEL_KEY, local.coding.evaluation.model)
    checks.check_memory(coding.min_memory_gb or 0)
    alone = coding.evaluation.cluster is None
    prepare_environment("cpu" if count_gpus() == 0 else "cuda", alone=alone)
    processes.start_sentinel()
    # Treated as Ctrl-C, which asyncio turns into an orderly shutdown.
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        backend = _backend(local)
        make = _sandbox(coding, say)
        return evaluate(
            settings,
            backend,
            config=config,
            command=command,
            say=say,
            make=make,
            report=write_report,
        )
    finally:
        signal.signal(signal.SIGTERM, before)


def _backend(config: DictConfig) -> Backend:
    coding = coding_of(config)
    assert isinstance(coding, BaselineConfig)
    if coding.evaluation.mode is EvaluationMode.verl:
        if find_spec("verl") is None:
            raise ConfigError(
                "coding.evaluation.mode=verl: verl is not installed; run `make setup`, or use a server "
                "(--base-url, coding.evaluation.base_url)"
            )
        from coding_model_project.verl_ext.rollout_backend import VerlBackend

        return VerlBackend(config)
    return simple_backend(coding.evaluation, seed=coding.seed, on_cpu=count_gpus() == 0)


def _sandbox(
    coding: BaselineConfig, say: Callable[[str], None]
) -> Callable[[SandboxConfig], Sandbox]:
    """Return the function that makes the sandbox, here or on the nodes of a cluster."""
    evaluation = coding.evaluation
    if evaluation.cluster is None:
        return make_sandbox
    with extra("train"):
        from coding_model_project.verl_ext.cluster.node_sandbox import NodesSandbox
        from coding_model_project.verl_ext.cluster.session import head_address, joined

    address = head_address(evaluation.ray_address)  # fail now, not after the model is loaded

    def join():
        if evaluation.mode is not EvaluationMode.verl:
            return joined(address)
        from coding_model_project.verl_ext.rollout_backend import rollout_environment

        return joined(address, rollout_environment())

    return partial(NodesSandbox, join=join, say=say)
