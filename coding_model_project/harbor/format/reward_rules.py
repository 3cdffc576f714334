"""Harbor's rules for reading rewards from a verifier's files; without a valid number they raise.

`reward.json` takes precedence if it exists, even if it is empty or malformed; else `reward.txt` counts.
The exit code of the tests is ignored. Rules of Harbor 0.25.0 (verifier/verifier.py, trial/trial.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from coding_model_project import strict_json
from coding_model_project.harbor.environment.tree import Tree
from coding_model_project.harbor.failures import (
    RewardFileEmptyError,
    RewardFileNotFoundError,
    RewardIsDirectoryError,
    RewardNotAnObjectError,
    RewardRangeError,
    VerifierOutputParseError,
    failure_cause,
)
from coding_model_project.harbor.format.task_config import RewardStrategy

Rewards = Mapping[str, float | int]
"""Named finite numbers. Integers in a JSON file stay integers."""

JSON_FILE, TEXT_FILE = "reward.json", "reward.txt"
MAX_BYTES = 1 << 20
MAIN_KEY = "reward"


def read_rewards(files: Tree) -> Rewards:
    """Read the rewards in a verifier's files, those of /logs/verifier.

    Raises:
        VerifierError: the files are invalid; the subclass has Harbor's name for the reason.
    """
    kinds = {entry[0]: entry[1] for entry in files.entries}
    for name, parse in ((JSON_FILE, _from_json), (TEXT_FILE, _from_text)):
        if name in kinds:
            return parse(_text(files, name, kinds[name]))
    raise RewardFileNotFoundError(f"the verifier wrote neither {JSON_FILE} nor {TEXT_FILE}")


def main_reward(rewards: Rewards | None) -> float | None:
    """Return the reward named "reward", else the only reward."""
    if not rewards:
        return None
    only = next(iter(rewards.values())) if len(rewards) == 1 else None
    return rewards.get(MAIN_KEY, only)


def check_range(rewards: Rewards, reward_range: tuple[float, float] | None) -> None:
    """Raise if the main reward is outside the task's declared range.

    Raises:
        RewardRangeError: it is.
    """
    value = rewards.get(MAIN_KEY)
    if reward_range is None or value is None or reward_range[0] <= value <= reward_range[1]:
        return
    low, high = reward_range
    raise RewardRangeError(f"the reward {value} is outside the declared range {low} to {high}")


def combined(strategy: RewardStrategy | None, steps: Sequence[Rewards | None]) -> Rewards | None:
    """Return the trial's rewards from those of its finished steps; None marks a step without rewards.

    The mean is per key over the steps with rewards; a key that a step lacks counts as 0.
    """
    if strategy is RewardStrategy.final:
        return steps[-1] if steps else None
    given = [rewards for rewards in steps if rewards is not None]
    keys = dict.fromkeys(key for rewards in given for key in rewards)
    if not keys:
        return None
    return {key: sum(rewards.get(key, 0) for rewards in given) / len(given) for key in keys}


def meets(rewards: Rewards | None, min_reward: float | Mapping[str, float] | None) -> bool:
    """Return whether later steps may run. A missing key meets no threshold."""
    if min_reward is None:
        return True
    thresholds = min_reward if isinstance(min_reward, Mapping) else {MAIN_KEY: min_reward}
    given = rewards or {}
    return not any(given.get(key, -math.inf) < least for key, least in thresholds.items())


def reward_valid(rewards: Rewards | None, exceptions: Sequence[str]) -> bool:
    """Return whether rewards measure the agent: they exist, and only the agent ended any step early.

    Args:
        exceptions: the recorded exception types, by Harbor's names.
    """
    return bool(rewards) and all(failure_cause(name).reward_valid for name in exceptions)


def _text(files: Tree, name: str, kind: str) -> str:
    """Return a reward file's text. Follows no links, since the verifier fills the folder.

    Raises:
        VerifierError: it is empty, not a regular file, not UTF-8, or larger than `MAX_BYTES`.
    """
    if kind == "l":
        raise VerifierOutputParseError(f"{name} is a link")
    if kind == "d":
        raise RewardIsDirectoryError(f"{name} is a directory")
    content = files.file(name)
    if not content:
        raise RewardFileEmptyError(f"{name} is empty")
    if len(content) > MAX_BYTES:
        raise VerifierOutputParseError(f"{name} has {len(content)} bytes, more than {MAX_BYTES}")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise VerifierOutputParseError(f"{name} is not UTF-8: {error}") from error


def _from_text(text: str) -> Rewards:
    try:
        value = float(text)
    except ValueError as error:
        raise VerifierOutputParseError(f"{TEXT_FILE} is not a number: {text[:80]!r}") from error
    if not math.isfinite(value):
        raise VerifierOutputParseError(f"{TEXT_FILE} is not finite: {text[:80]!r}")
    return {MAIN_KEY: value}


def _from_json(text: str) -> Rewards:
    try:
        given = strict_json.loads(text)
    except ValueError as error:
        raise VerifierOutputParseError(f"{JSON_FILE} is not JSON: {error}") from error
    if not isinstance(given, dict):
        _number(given)
        raise RewardNotAnObjectError(f"{JSON_FILE} is the bare number {given}, not an object")
    return {key: _number(value) for key, value in given.items()}


def _number(value: object) -> float | int:
    """Return a finite number of JSON; true is 1.0.

    Raises:
        VerifierOutputParseError: the value is not one.
    """
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, int | float):
        raise VerifierOutputParseError(f"{JSON_FILE}: {str(value)[:80]!r} is not a number")
    try:
        if math.isfinite(value):
            return value
    except OverflowError:
        pass
    raise VerifierOutputParseError(f"{JSON_FILE} holds a number that is not finite")
