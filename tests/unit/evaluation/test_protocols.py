from dataclasses import fields, replace

import pytest

from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.evaluation.plan import GREEDY, SAMPLED, data_version, protocol_of
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.readings import CountedBy
from tests.fakes import stdin_problem

PROBLEM = stdin_problem(("1", "2"))


def described(chosen=SAMPLED, problem=PROBLEM):
    return chosen.described({"toy": data_version([problem])})


def test_the_hash_changes_with_all_that_a_number_depends_on_and_with_nothing_else():
    options = {
        "temperature": 0.7, "n": 8, "max_tokens": 10, "top_p": 1.0, "top_k": 20, "min_p": 0.0,
        "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1,
        "stop": ("\n\n",), "chat_template_kwargs": {"enable_thinking": True},
    }  # fmt: skip
    drawn = [replace(SAMPLED.sampling, **{name: value}) for name, value in options.items()]
    drawn.append(replace(SAMPLED.sampling, chat_template_kwargs={"enable_thinking": False}))
    changed = [
        *(replace(SAMPLED, sampling=sampling) for sampling in drawn),
        replace(SAMPLED, prompt=PromptStyle.bare),
        replace(SAMPLED, stop_early=True),
        replace(SAMPLED, system_prompt="Be brief."),
        replace(SAMPLED, extra_body={"top_k": 20}),
        replace(SAMPLED, grader_version="other"),
    ]
    hashes = [described(other)["hash"] for other in changed]
    hashes += [
        described(problem=replace(PROBLEM, statement="!"))["hash"],
        described(problem=stdin_problem(("1", "3")))["hash"],
        described(problem=replace(PROBLEM, limits=replace(PROBLEM.limits, cpu_s=1.0)))["hash"],
        described()["hash"],
    ]
    assert len(set(hashes)) == len(hashes)
    assert described(problem=replace(PROBLEM, gold=("print(2)",)))["hash"] == described()["hash"]


CHANGES = {
    "protocol": "budget", "n": 4, "temperature": 0.7, "top_p": 0.9, "max_tokens": 10, "top_k": 20,
    "min_p": 0.1, "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1,
    "stop": ["\n\n"], "chat_template_kwargs": {"enable_thinking": True}, "extra_body": {"top_k": 20},
    "system_prompt": "Be brief.", "repair_rounds": 1, "stop_early": True, "rule": CountedBy.ours,
}  # fmt: skip
"""Another value of each key of a protocol. A new key of `coding.evaluation` goes here, or below."""
ELSEWHERE = {
    "datasets", "data_dir", "from_date", "to_date", "split", "limit", "max_tests", "columns",
    "model", "shard", "cutoff", "profile",
    "mode", "cluster", "ray_address", "base_url", "api_key_env", "send_seeds", "token_limit_field",
    "timeout_s", "retry_s", "concurrency", "max_model_len", "dtype", "wandb",
}  # fmt: skip
"""Keys that select problems, so that the versions of the data sets differ; that are recorded beside the
protocol or set its keys; and that say how and where an evaluation runs."""


@pytest.mark.parametrize(
    "key", [one.name for one in fields(EvaluationConfig) if one.name not in ELSEWHERE]
)
def test_a_key_of_an_evaluation_is_part_of_the_hash_unless_named(key):
    asked = EvaluationConfig(**{"protocol": "sampled", key: CHANGES[key]})
    other = protocol_of(asked, prompt=SAMPLED.prompt)
    assert other.described({})["hash"] != SAMPLED.described({})["hash"]


def test_the_hash_is_the_same_in_every_process():
    chosen = replace(GREEDY, grader_version="1")
    assert chosen.described({"a": "1", "b": "2"})["hash"] == "cdfb7acc911b6b33"
    assert chosen.described({"b": "2", "a": "1"}) == chosen.described({"a": "1", "b": "2"})


def test_what_no_server_was_sent_is_not_in_the_record():
    asked = EvaluationConfig(protocol="sampled", system_prompt="")
    empty = protocol_of(asked, prompt=SAMPLED.prompt)
    assert empty.described({}) == SAMPLED.described({})
    assert not {"system_prompt", "extra_body"} & set(SAMPLED.described({}))
    sent = replace(SAMPLED, system_prompt="Be brief.", extra_body={"top_k": 20}).described({})
    assert (sent["system_prompt"], sent["extra_body"]) == ("Be brief.", {"top_k": 20})
