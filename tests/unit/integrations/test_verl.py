"""The reward function for verl, by itself and loaded and called by verl."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import coding_model_project as cmp
from coding_model_project.data.problems import write_problems
from coding_model_project.integrations.trl import CodeReward
from coding_model_project.integrations.verl import compute_score
from coding_model_project.types import Call, Isolation, Problem, Test
from tests.fakes import stdin_problem
from tests.tables import tables

TABLES = tables("integrations")

ADD = cmp.Problem.simple("Add.", tests=[cmp.Test(cmp.Stdin("1 2"), expected="3")], id="mine/add")
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
KEYS = {
    *("score", "acc", "pass_fraction", "judge_s"),
    *("no_code", "syntax_error", "runtime_error", "timeout", "wrong_answer"),
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("data") / "problems.jsonl"
    write_problems(path, [ADD, stdin_problem(id="mine/untested")])
    return str(path)


@pytest.mark.parametrize(("truth", "options", "message"), TABLES["wrong settings"])
def test_wrong_settings_are_refused(problems, truth, options, message):
    with pytest.raises(cmp.ConfigError, match=message):
        compute_score("mine", RIGHT, truth, problems=problems, **options)


@pytest.mark.parametrize(
    ("truth", "message"), [*TABLES["no tests"], ({"inputs": {1}}, "neither JSON nor convertible")]
)
@pytest.mark.sandbox
def test_a_row_without_usable_tests_is_no_score(truth, message):
    with pytest.raises(cmp.DataError, match=message):
        compute_score("mine", RIGHT, truth)


@pytest.mark.sandbox
def test_problems_by_id(problems):
    found = compute_score("mine", RIGHT, "mine/add", {"num_turns": None}, problems=problems)
    assert found.keys() == KEYS
    assert (found["score"], found["acc"]) == (1.0, 1.0)
    assert all(type(value) is float for value in found.values())
    wrong = compute_score("mine", "```python\nprint(4)\n```", "mine/add", problems=problems)
    assert (wrong["score"], wrong["wrong_answer"], wrong.keys()) == (0.0, 1.0, KEYS)
    assert compute_score("mine", "I cannot.", "mine/add", problems=problems)["no_code"] == 1.0
    with pytest.raises(cmp.DataError, match="mine/untested has no hidden tests"):
        compute_score("mine", RIGHT, "mine/untested", problems=problems)


NO_COMMA = "punctuation:no_comma"
CASES = TABLES["cases"]


@pytest.mark.sandbox
@pytest.mark.parametrize("case", CASES)
def test_tests_in_verls_own_forms(case):
    import numpy as np

    truth, completion, score = CASES[case]
    assert compute_score("taco", completion, json.dumps(truth))["score"] == score
    assert compute_score("taco", completion, truth)["score"] == score
    arrays = {k: np.array(v, dtype=object) if isinstance(v, list) else v for k, v in truth.items()}
    assert compute_score("taco", completion, arrays)["score"] == score
    assert compute_score("taco", completion, truth, kind="sparse")["score"] == 0.0


@pytest.mark.sandbox
def test_one_file_may_mix_data_sets(capfd):
    rows = [
        ("taco", RIGHT, {"inputs": ["1 2\n"], "outputs": ["3\n"]}, 1.0),
        ("mine", RIGHT, json.dumps([{"input": "1 2", "output": "3", "testtype": "stdin"}]), 1.0),
        ("mine", "```python\ndef f(x): return x + 1\n```", json.dumps(["assert f(1) == 2"]), 1.0),
        ("numina_olympiads", "So \\boxed{1/2}.", "0.5", 1.0),
        ("numina_olympiads", "So \\boxed{1/3}.", "0.5", 0.0),
        ("ifeval", "no commas", {"instruction_id": [NO_COMMA], "kwargs": [None]}, 1.0),
    ]
    for source, completion, truth, score in rows:
        found = compute_score(source, completion, truth)
        assert (found["score"], found.keys()) == (score, KEYS), (source, truth)
    said = capfd.readouterr().err.splitlines()
    assert sum("numina_olympiads" in line for line in said) == 1


@pytest.mark.sandbox
def test_a_value_in_a_list_of_one_may_be_meant_either_way():
    boxed = "```python\ndef f(n): return [n]\n```"
    for outputs in ([[3], [4]], ["[3]", "[4]"]):
        inputs = ["3", "4"] if isinstance(outputs[0], str) else [[3], [4]]
        truth = {"fn_name": "f", "inputs": inputs, "outputs": outputs}
        assert compute_score("taco", boxed, truth)["score"] == 1.0
        assert compute_score("taco", boxed.replace("[n]", "n"), truth)["score"] == 1.0
        assert compute_score("taco", boxed.replace("[n]", "[n, n]"), truth)["score"] == 0.0


@pytest.mark.verl
def test_verls_own_scorers_judge_what_no_form_of_ours_is():
    answer = "<answer>Paris</answer>"
    truth = {"target": ["Paris"]}
    found = compute_score("searchR1_nq", answer, truth)
    assert (found["score"], found["acc"], found.keys()) == (1.0, 1.0, KEYS)
    assert compute_score("searchR1_nq", "<answer>Rome</answer>", truth)["wrong_answer"] == 1.0
    with pytest.raises(cmp.DataError, match="unknown form"):
        compute_score("searchR1_nq", answer, truth, fallback="raise")
    with pytest.raises(cmp.DataError, match="unknown form"):
        compute_score("taco", RIGHT, truth)


@pytest.mark.sandbox
def test_threads_share_one_sandbox(problems):
    def one(number):
        completion = f"```python\nprint({number % 4})\n```"
        found = compute_score("mine", completion, "mine/add", problems=problems, min_tier="rlimit")
        return found["score"]

    before = sum(thread.name == "judge" for thread in threading.enumerate())
    with ThreadPoolExecutor(12) as pool:
        scores = list(pool.map(one, range(12)))
    assert scores == [float(number % 4 == 3) for number in range(12)]
    assert sum(thread.name == "judge" for thread in threading.enumerate()) == before + 1


# ── in verl ───────────────────────────────────────────────────────────────────────────────────────


def verl_config(**reward_kwargs):
    """verl's own configuration, with what the page adds."""
    from hydra import compose, initialize_config_module
    from omegaconf import open_dict

    path = "pkg://coding_model_project.integrations.verl"
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", [f"reward.custom_reward_function.path={path}"])
    with open_dict(config):
        config.reward.custom_reward_function.reward_kwargs = reward_kwargs
    return config


class Tokenizer:
    """Tokens are code points."""

    def decode(self, ids, skip_special_tokens=True):
        return "".join(map(chr, ids.tolist()))


def batch(rows):
    """A batch as verl's agent loop hands it to a reward manager, a row at a time."""
    import numpy as np
    import torch
    from tensordict import TensorDict
    from verl import DataProto

    length = max(len(text) for text, _ in rows)
    responses = torch.zeros(len(rows), length, dtype=torch.long)
    mask = torch.zeros(len(rows), 4 + length, dtype=torch.long)
    for row, (text, _) in enumerate(rows):
        responses[row, : len(text)] = torch.tensor([ord(letter) for letter in text])
        mask[row, : 4 + len(text)] = 1
    about = {
        "data_source": np.array(["mine"] * len(rows), dtype=object),
        "reward_model": np.array([{"ground_truth": truth} for _, truth in rows], dtype=object),
        "extra_info": np.array([{} for _ in rows], dtype=object),
    }
    tensors = TensorDict({"responses": responses, "attention_mask": mask}, batch_size=len(rows))
    return DataProto(batch=tensors, non_tensor_batch=about)


@pytest.mark.verl
@pytest.mark.parametrize("manager", ["naive", "dapo"])
async def test_verls_reward_managers_call_it(problems, manager):
    import asyncio

    from verl.trainer.ppo.reward import load_reward_manager

    config = verl_config(problems=problems, kind="sparse")
    config.reward.reward_manager.name = manager
    loaded = load_reward_manager(config, Tokenizer())
    loaded.loop = asyncio.get_running_loop()
    rows = [
        (RIGHT, "mine/add"),
        ("```python\nprint(4)\n```", "mine/add"),
        (RIGHT, "mine/untested"),
        ("no code", "mine/add"),
    ]
    data = batch(rows)
    found = await asyncio.gather(
        *(loaded.run_single(data[i : i + 1]) for i in range(len(rows))), return_exceptions=True
    )
    assert isinstance(found[2], cmp.DataError)
    assert [found[i]["reward_score"] for i in (0, 1, 3)] == [1.0, 0.0, 0.0]
    assert [found[i]["reward_extra_info"]["acc"] for i in (0, 1, 3)] == [1.0, 0.0, 0.0]
    assert {frozenset(found[i]["reward_extra_info"]) for i in (0, 1, 3)} == {frozenset(KEYS)}


@pytest.mark.verl
def test_verl_loads_it_as_a_file_too():
    from verl.trainer.ppo.reward import get_custom_reward_fn

    from coding_model_project.integrations import verl

    config = verl_config()
    config.reward.custom_reward_function.path = verl.__file__
    score = get_custom_reward_fn(config)
    truth = json.dumps(CASES["stdin"][0])
    found = score(data_source="taco", solution_str=RIGHT, ground_truth=truth, extra_info=None)
    assert found["score"] == 0.5


@pytest.mark.sandbox
def test_rewards_share_no_process_whatever_the_publisher_does(tmp_path):
    """A program that counts its calls must not learn to."""
    counts = "```python\nn = 0\ndef f(x):\n    global n\n    n += 1\n    return n\n```"
    tests = tuple(Test(Call("f", (0,)), expected=expected) for expected in (1, 2))
    problem = Problem(
        id="mine/1", split="test", statement="", tests=tests, isolation=Isolation.shared
    )
    write_problems(path := tmp_path / "problems.jsonl", [problem])
    assert compute_score("mine", counts, "mine/1", problems=str(path))["score"] == 0.5
    assert CodeReward([problem])(completions=[counts], problem_id=["mine/1"]) == [0.5]
