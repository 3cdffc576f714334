import os

import pytest

from coding_model_project.harbor.environment.tree import pack
from coding_model_project.harbor.failures import VerifierError, exception_type, failure_cause
from coding_model_project.harbor.format.reward_rules import (
    MAX_BYTES,
    check_range,
    combined,
    meets,
    read_rewards,
    reward_valid,
)
from coding_model_project.harbor.format.task_config import RewardStrategy
from tests.tables import tables

CASES = tables("harbor")

PARSE, EMPTY = "VerifierOutputParseError", "RewardFileEmptyError"


def outcome(tmp_path, text=None, json=None):
    """Return the rewards in these files of a verifier, or the exception's name."""
    for name, content in (("reward.txt", text), ("reward.json", json)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
    try:
        return read_rewards(pack(str(tmp_path), 2 * MAX_BYTES, 9))
    except VerifierError as error:
        return exception_type(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b" 2.5e-1\n", 0.25), (b"1_0", 10.0), ("１".encode(), 1.0), (b"-3", -3.0), (b"", EMPTY),
        (b"nan", PARSE), (b"inf", PARSE), (b"1e999", PARSE), (b"\xef\xbb\xbf1", PARSE),
        (b"\xff1", PARSE), (b"80%", PARSE), (b"0,5", PARSE), (b"1\n0\n", PARSE), (b"0x1", PARSE),
        (b"1" * (MAX_BYTES + 1), PARSE),
    ],
)  # fmt: skip
def test_reward_txt_is_one_finite_float(tmp_path, text, expected):
    given = outcome(tmp_path, text)
    assert given == (expected if isinstance(expected, str) else {"reward": expected})


@pytest.mark.parametrize(
    ("json", "expected"),
    [*CASES["reward.json"], ('{"reward": %s}' % ("9" * 400), PARSE), ("[" * 100_000, PARSE)],
)
def test_reward_json_is_a_flat_object_of_finite_numbers(tmp_path, json, expected):
    assert outcome(tmp_path, json=json.encode()) == expected


def test_reward_json_wins_even_if_it_is_bad(tmp_path):
    assert outcome(tmp_path, b"1", b'{"reward": 0.25}') == {"reward": 0.25}
    assert outcome(tmp_path, b"1", b"") == EMPTY


def test_no_file_a_folder_a_link_and_a_pipe_are_no_rewards(tmp_path):
    assert outcome(tmp_path) == "RewardFileNotFoundError"
    reward = tmp_path / "reward.txt"
    reward.mkdir()
    assert outcome(tmp_path) == "IsADirectoryError"
    reward.rmdir()
    (tmp_path / "elsewhere").write_text("1")
    reward.symlink_to(tmp_path / "elsewhere")
    assert outcome(tmp_path) == PARSE
    reward.unlink()
    os.mkfifo(reward)  # which no environment gives out
    assert outcome(tmp_path) == "RewardFileNotFoundError"


def test_whole_numbers_stay_whole(tmp_path):
    assert str(outcome(tmp_path, json=b'{"a": 1, "b": 1.0}')) == "{'a': 1, 'b': 1.0}"


def test_a_reward_outside_its_declared_range_is_an_error():
    check_range({"reward": 1.2, "bytes": 50}, (0.0, 1.2))
    check_range({"bytes": 50}, (0.0, 1.0))
    with pytest.raises(VerifierError, match=r"50 is outside the declared range 0.0 to 1.0"):
        check_range({"reward": 50}, (0.0, 1.0))


@pytest.mark.parametrize(("steps", "mean", "final"), CASES["rewards_of_steps"])
def test_rewards_of_steps(steps, mean, final):
    assert combined(None, steps) == combined(RewardStrategy.mean, steps) == mean
    assert combined(RewardStrategy.final, steps) == final


def test_a_threshold_that_is_missed_or_missing():
    assert meets({"reward": 0.5}, 0.5) and not meets({"reward": 0.4}, 0.5)
    assert not meets({"other": 1}, {"other": 1, "reward": 0})
    assert meets(None, None) and not meets(None, -1e9)


def test_what_only_the_agent_ended_still_measures_it():
    assert reward_valid({"reward": 0}, ["AgentTimeoutError"])
    assert not reward_valid({"reward": 0}, ["AgentTimeoutError", "NonZeroAgentExitCodeError"])
    assert not reward_valid({}, [])
    assert failure_cause("HealthcheckError") == "sandbox_failed"
    assert failure_cause("KeyError") == "unclassified"
