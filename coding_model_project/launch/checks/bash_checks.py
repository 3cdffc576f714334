"""Checks of `coding.bash` in a run's configuration."""

from __future__ import annotations

import json
from pathlib import Path

from omegaconf import DictConfig

from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import repair_checks
from coding_model_project.launch.checks.agent_checks import has_agent


def has_bash(config: DictConfig) -> bool:
    """Return whether samples are episodes of `bash_loop`."""
    return config.coding.bash.turns > 0 and not has_agent(config)


def reply_tokens(config: DictConfig) -> int:
    """Return the maximum number of tokens of an episode's reply."""
    bash = config.coding.bash
    return bash.reply_tokens or config.data.max_response_length // (bash.turns + 1)


def check_values(config: DictConfig) -> None:
    """Check the values of `coding.bash`.

    Raises:
        ConfigError: a value is invalid; the message names the key.
    """
    bash, data = config.coding.bash, config.data
    if not has_bash(config):
        return
    for key, value in bash.items():
        if isinstance(value, int | float) and value <= 0:
            raise ConfigError(f"coding.bash.{key}={value}: set it to a number above 0")
    if repair_checks.has_episodes(config):
        raise ConfigError(
            "coding.bash.turns and coding.repair: a sample uses only one of them; set "
            "coding.repair.rounds=0 and coding.repair.attempt_tokens=null"
        )
    if config.coding.reward.shaping.format_weight:
        raise ConfigError(
            "coding.reward.shaping.format_weight: an episode of the bash agent has no required form; set "
            "it to 0"
        )
    if not 1 <= reply_tokens(config) <= data.max_response_length:
        raise ConfigError(
            f"coding.bash.reply_tokens={bash.reply_tokens}: set it to at most the whole episode's "
            f"data.max_response_length={data.max_response_length}"
        )


def check_template(config: DictConfig) -> None:
    """Check that the model's chat template takes tools. Models on the hub are not checked.

    Raises:
        ConfigError: the chat template takes no tools, so the model would never see them.
    """
    if not has_bash(config) or config.coding.bash.calls != Calls.tools:
        return
    model = config.actor_rollout_ref.model
    template = model.get("custom_chat_template") or chat_template(Path(str(model.path)))
    if template is not None and "tools" not in template:
        raise ConfigError(
            f"coding.bash.calls=tools: the chat template of {model.path} takes no tools; use a model "
            "that does, or coding.bash.calls=block"
        )


def chat_template(folder: Path) -> str | None:
    """Return the chat template in a model's folder; None if there is none."""
    if (file := folder / "chat_template.jinja").is_file():
        return file.read_text()
    if (file := folder / "tokenizer_config.json").is_file():
        template = json.loads(file.read_text()).get("chat_template")
        return None if template is None else json.dumps(template)
    return None
