from dataclasses import replace

from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.evaluation.plan import GREEDY, SAMPLED, data_version, protocol_of
from coding_model_project.grading.prompts import PromptStyle
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
