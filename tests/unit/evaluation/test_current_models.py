"""Models that reason, and options beyond temperature: a real server, and what reaches the reader."""

import json
import random
import re

import pytest

from coding_model_project.configs.schema import coding_of, evaluation_settings, new_config
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.backends.generation import (
    Sampling,
    count_reasoning,
    refuse_unknown_variables,
)
from coding_model_project.evaluation.backends.openai_backend import OpenAIBackend
from coding_model_project.evaluation.evaluate import evaluate
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.evaluation.results import read_evaluation
from coding_model_project.evaluation.settings import (
    profile_names,
    read_profile,
    simple_backend,
    with_profile,
)
from tests.completion_server import CompletionServer, Thinking, serving
from tests.fakes import stdin_problem
from tests.tables import tables

CASES = tables("evaluation")

ASK = [{"role": "user", "content": "one two"}]
QWEN = {"chat_template_kwargs": {"enable_thinking": True}, "top_k": 20, "min_p": 0.0}
READS = (
    *("top_k", "min_p", "stop", "chat_template_kwargs"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
)


def prompted(prompt, seed):
    """The prompt's first word is the program, right for the seeds that are even."""
    return f"```python\n{prompt.split()[0]}\n```" if seed % 2 == 0 else "No idea, sorry"


def thinker(**thinking):
    return CompletionServer(prompted, thinking=Thinking(**thinking), reads=READS)


def run(tmp_path, server, folder="run", **evaluation):
    problems = [
        stdin_problem(("", str(i)), id=f"toy/{i}", statement=f"{i} please") for i in range(4)
    ]
    write_problems(tmp_path / "toy.jsonl", problems)
    config = new_config(
        {"run_dir": str(tmp_path / folder), "sandbox": {"name": "tests.fakes:FakeSandbox"}},
        {"model": "toy", "base_url": server.url, "datasets": [f"toy={tmp_path / 'toy.jsonl'}"]}
        | evaluation,
    )
    said = []
    coding = coding_of(config)
    metrics = evaluate(
        evaluation_settings(coding),
        simple_backend(coding.evaluation, seed=1, on_cpu=True),
        config=config,
        command=["test"],
        say=said.append,
    )
    return metrics["toy"], "\n".join(said)


# ── reasoning ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_and_counted_apart_and_never_judged(field, tmp_path):
    decoy = "```python\ndecoy\n```"
    server = thinker(reason=lambda *_: f"Perhaps {decoy} would do", field=field)
    with serving(server):
        metrics, said = run(tmp_path, server, profile="qwen3-thinking", protocol="sampled", n=2)
    generated = [json.loads(line) for line in (tmp_path / "run/completions.jsonl").open()]
    assert all(decoy in one["reasoning"] and decoy not in one["completion"] for one in generated)
    counted = sum(one["reasoning_tokens"] for one in generated)
    assert metrics["reasoning"]["tokens"] == counted > 0
    assert metrics["reasoning"]["estimated"] == 0
    assert metrics["tokens"]["total"] > counted
    assert re.search(r"judge s +reasoning\n", said)
    assert f"{counted:,} (" in said
    answers = {one["problem"]: one for one in generated if one["seed"] % 2}
    results = {(r.problem, r.sample): r for r in read_evaluation(tmp_path / "run").results}
    for one in answers.values():  # no program in the answer, though there is one in the reasoning
        assert results[one["problem"], one["sample"]].error == "no_code"
    assert "reasoning:" in (tmp_path / "run/qa_logs/toy.md").read_text()


def test_without_a_count_the_share_of_the_text_is_an_estimate_and_says_so(tmp_path):
    with serving(thinker(counts=False)) as server:
        metrics, said = run(tmp_path, server, chat_template_kwargs={"enable_thinking": True})
    assert metrics["reasoning"]["estimated"] == 4
    assert 0 < metrics["reasoning"]["tokens"] < metrics["tokens"]["total"]
    assert "~" in said


def test_answers_that_were_cut_off_while_reasoning_are_counted_and_shown(tmp_path):
    with serving(thinker(reason=lambda *_: "hm " * 50)) as server:
        metrics, said = run(tmp_path, server, max_tokens=20)
    assert (metrics["truncated"], metrics["truncated_in_reasoning"]) == (4, 4)
    assert metrics["errors"]["no_code"] == 1
    assert "4 of 4 answers were cut off by max_tokens=20, 4 before an answer began" in said
    assert "before an answer began" in (tmp_path / "run/qa_logs/toy.md").read_text()


def test_tokens_of_reasoning_by_its_marks():
    def count(prompt, output, opens=1, closes=2):
        return count_reasoning(prompt, output, opens=opens, closes=closes)

    assert count([9], [1, 5, 5, 2, 6]) == 4
    assert count([9, 1], [5, 5, 2, 6]) == 3  # the template opened it
    assert count([9, 1], [5, 5]) == 2  # cut off
    assert count([9, 1, 2], [6, 6]) == 0  # the template closed it: thinking is off
    assert count([9], [6, 6]) == 0
    assert count([9], [6, 6], closes=None) is None


# ── options ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_server_gets_every_option():
    sampling = Sampling(
        temperature=0.6,
        top_k=20,
        min_p=0.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        repetition_penalty=1.1,
        stop=("END",),
        chat_template_kwargs={"enable_thinking": False},
    )
    with serving(CompletionServer(lambda *_: "done")) as server:
        async with OpenAIBackend(EvaluationConfig(base_url=server.url, model="toy")) as backend:
            await backend.complete(ASK, sampling, seed=1)
            await backend.complete(ASK, Sampling(), seed=1)
    first, plain = server.asked
    assert {name: first[name] for name in sampling.optional()} == sampling.optional()
    assert first["stop"] == ["END"]
    assert set(plain) == {"model", "messages", "max_tokens", "temperature", "top_p", "seed"}


@pytest.mark.parametrize(("options", "says"), CASES["out of range"])
def test_options_out_of_range_are_refused_by_name(options, says, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(says)):
        run(tmp_path, CompletionServer(prompted, url="http://localhost:9/v1"), **options)


def test_a_variable_that_the_chat_template_does_not_have_is_refused():
    template = "{% if enable_thinking is false %}<think></think>{% endif %}{{ messages }}"
    refuse_unknown_variables(template, "m", {"enable_thinking": False})
    with pytest.raises(ConfigError, match="no variable 'enable_think'"):
        refuse_unknown_variables(template, "m", {"enable_think": False})


# ── servers that drop options ─────────────────────────────────────────────────────────────────────


async def check(server, **options):
    with serving(server):
        async with OpenAIBackend(
            EvaluationConfig(base_url=server.url, model="toy", retry_s=1.0)
        ) as backend:
            return list(await backend.check(Sampling(**options)))


async def test_a_server_that_reads_its_options_is_asked_once_for_each():
    server = thinker()
    assert await check(server, **QWEN, presence_penalty=0.5) == []
    assert len(server.asked) == 3  # min_p=0 is off
    assert all(asked["max_tokens"] < 50 for asked in server.asked)
    assert await check(thinker()) == []


async def test_a_server_that_ignores_an_option_is_found_before_anything_is_generated(tmp_path):
    dice = random.Random(0)
    server = CompletionServer(lambda *_: str(dice.random()), reads=("top_k",))
    with pytest.raises(ConfigError, match=r"ignores `min_p`.*--min-p"):
        await check(server, top_k=20, min_p=0.1)


async def test_what_cannot_be_found_out_is_said():
    notes = await check(CompletionServer(lambda *_: "same"), min_p=0.1, presence_penalty=1.0)
    found = [re.search(r"may ignore `(\w+)`", note)[1] for note in notes]
    assert found == ["min_p", "presence_penalty"]


async def test_an_option_that_bounds_what_a_server_draws_is_read():
    """The server behaves like llama.cpp: it accepts and applies any value."""
    server = CompletionServer(lambda *_: "")
    server.answer = lambda *_: (
        "likeliest" if server.asked[-1].get("top_k") == 1 else str(random.random())
    )
    assert await check(server, top_k=20) == []


def refusing(field, message):
    return CompletionServer(prompted, refuses={field: {"error": {"message": message}}})


@pytest.mark.parametrize(
    ("server", "options", "says"),
    [
        (refusing("min_p", "min_p: unknown field"), {"min_p": 0.1}, "rejects `min_p`.*--min-p"),
        (
            CompletionServer(prompted, thinking=Thinking(heeds=False), reads=READS),
            {"chat_template_kwargs": {"enable_thinking": False}},
            "ignores `chat_template_kwargs`.*enable_thinking=false",
        ),
        (
            CompletionServer(lambda *_: "first END second", reads=READS),
            {"stop": ["END"]},
            "ignores `stop`: an answer continues after 'END'",
        ),
        (
            refusing("messages", "default chat template is no longer allowed"),
            {},
            "the chat template of toy does not work",
        ),
    ],
)
def test_a_server_that_does_not_do_what_is_asked_ends_the_evaluation(
    server, options, says, tmp_path
):
    with serving(server), pytest.raises(ConfigError, match=says):
        run(tmp_path, server, **options)


# ── profiles ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_profile_is_what_its_options_are(tmp_path):
    with serving(thinker()) as server:
        sampled = {"protocol": "sampled", "n": 1}
        run(tmp_path, server, "profile", profile="qwen3-thinking", **sampled)
        options = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 32768, **QWEN}
        run(tmp_path, server, "options", **options, **sampled)
        run(tmp_path, server, "other", profile="qwen3-thinking", top_k=10, **sampled)
    names = ("profile", "options", "other")
    hashes = [read_evaluation(tmp_path / name).protocol_hash for name in names]
    assert hashes[0] == hashes[1] != hashes[2]
    info = json.loads((tmp_path / "profile/run_info.json").read_text())
    assert info["profile"] == "qwen3-thinking"


def test_all_profiles_can_be_read():
    assert all(read_profile(name).temperature is not None for name in profile_names())


def test_an_own_profile_gives_way_to_options_one_by_one(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("temperature: 0\nextra_body: {a: 1, b: 2}\nstop: [END]\n")
    asked = EvaluationConfig(
        model="m", base_url="http://x/v1", profile=str(own), extra_body={"a": 3}, max_tokens=7
    )
    found = with_profile(asked)
    assert (found.extra_body, found.stop, found.max_tokens) == ({"a": 3, "b": 2}, ["END"], 7)
    assert found.temperature == 0


@pytest.mark.parametrize(("profile", "content", "says"), CASES["profiles"])
def test_a_profile_that_does_not_work_is_refused_by_name(
    profile, content, says, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / profile).write_text(content)
    with pytest.raises(ConfigError, match=re.escape(says)):
        with_profile(EvaluationConfig(model="m", base_url="http://x/v1", profile=profile))
