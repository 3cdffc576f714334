"""tinyshell: what is drawn, what splits share, and that its verifiers see every usual mistake."""

import json
import random

import pytest

from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.episodes.bash import Calls, Ending, Limits, Reply
from coding_model_project.episodes.tool_calls import (
    BASH_TOOL,
    MARKS,
    bash_command,
    for_template,
    parse,
)
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.agents import BashAgent, Oracle, Script
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.trial import Trials
from coding_model_project.synthetic import tinyshell
from coding_model_project.synthetic.tiny_model import TinyModelConfig, train_tokenizer
from coding_model_project.synthetic.tinyshell import (
    Draw,
    HabitCorpus,
    as_text,
    generate,
    prepare_files,
    trace,
    write_shell_task,
)
from tests.unit.harbor.places import run_in_environments


def make_few(monkeypatch):
    """Of the files' tasks, which are 864 for training."""
    monkeypatch.setattr(tinyshell, "SIZES", {"train": 6, "validation": 2, "test": 2})
    monkeypatch.setattr(tinyshell, "N_SHOWN", 3)


def sentences(tasks):
    return {deed.instruction for task in tasks for deed in task.deeds}


def test_splits_share_no_sentence_and_seeds_decide():
    splits = {name: generate(name, 150) for name in ("train", "validation", "test")}
    said = {name: sentences(tasks) for name, tasks in splits.items()}
    assert not said["train"] & said["test"]
    assert not said["train"] & said["validation"] and not said["test"] & said["validation"]
    assert generate("test", 20) == splits["test"][:20]
    assert generate("test", 20, seed=1) != splits["test"][:20]
    assert {len(task.commands) for task in splits["train"]} == {1, 2}
    with pytest.raises(ValueError, match="split=tset: expected one of"):
        generate("tset", 1)


def test_a_corpus_has_the_right_and_the_usual_wrong_commands_of_training_tasks():
    episodes = HabitCorpus(habit=0.5).draw(random.Random(0), 200)
    assert {message["role"] for message in episodes[0]} == {"system", "user", "assistant"}
    said = [message["content"] for episode in episodes for message in episode[2:]]
    text = "\n".join(said)
    assert "head -n 1" in text and "head " in text.replace("head -n 1", "")
    asked = {part for episode in episodes for part in episode[1]["content"].split(" Then: ")}
    assert not asked & sentences(generate("test", 300))


def one_of_each() -> list:
    """A task for each action on its own, and a few of two."""
    draw, rng = Draw("test"), random.Random(0)
    found: dict[tuple[str, ...], object] = {}
    while len(found) < 17:
        task = draw(rng)
        keys = tuple(deed.action.key for deed in task.deeds)
        if len(keys) == 1 or sum(len(known) > 1 for known in found) < 4:
            found.setdefault(keys, task)
    return list(found.values())


@pytest.mark.sandbox
def test_solutions_earn_1_by_script_and_by_the_agent_and_mistakes_less(tmp_path):
    tasks = one_of_each()
    problems = [write_shell_task(tmp_path, task, str(n)) for n, task in enumerate(tasks)]
    write_problems(tmp_path / "problems.jsonl", problems)

    class Recited:
        """Says what a trace has, and is told what it has."""

        def __init__(self, messages):
            self.messages = messages

        async def reply(self, messages, max_tokens):
            assert messages == self.messages[: len(messages)]
            return Reply(text=self.messages[len(messages)]["content"], tokens=1)

    async def use(environments):
        trials = Trials(environments)

        async def reward(problem, agent):
            outcome = await trials.run(load_task(problem.task), agent)
            assert outcome.error is None
            return outcome.rewards["reward"]

        for task, problem in zip(tasks, read_problems(tmp_path / "problems.jsonl"), strict=True):
            assert await reward(problem, Oracle()) == 1.0
            agent = BashAgent(Recited(trace(task)), Limits(turns=4))
            assert await reward(problem, agent) == 1.0
            assert agent.episodes[0].ending is Ending.done
            wrong = [command for deed in task.deeds for command in deed.wrong]
            agent = BashAgent(Recited(trace(task, wrong)), Limits(turns=4))
            assert await reward(problem, agent) < 1.0, wrong
            assert await reward(problem, Script("true")) == 0.0
            assert await reward(problem, Script("rm -r /app/*")) < 1.0

    run_in_environments(use)


@pytest.mark.slow
def test_the_tools_form_is_read_by_the_parser_and_shown_by_the_models_own_template():
    episodes = HabitCorpus(habit=0.5, calls=Calls.tools)
    config = TinyModelConfig(vocab_size=300, tools=True)
    tokenizer = train_tokenizer(
        episodes.texts(random.Random(0)), config.vocab_size, tools=config.tools
    )
    task = next(one for one in generate("train", 20) if len(one.commands) == 2)
    messages = trace(task, calls=Calls.tools)
    assert [m["role"] for m in messages[2:]] == ["assistant", "tool"] * 2 + ["assistant"]

    def shown(conversation, tools=None):
        return tokenizer.apply_chat_template(conversation, tools=tools, tokenize=False)

    text = shown(messages, Calls.tools.schemas)
    assert text == shown(for_template(messages), Calls.tools.schemas)  # text or object: the same
    assert text == shown(as_text(messages, [BASH_TOOL]))
    calls = parse(text.partition("</tools>")[2]).calls
    assert tuple(bash_command(call) for call in calls) == task.commands
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True).count("<tool_call>") == 2
    assert [tokenizer.convert_tokens_to_ids(mark) in ids for mark in MARKS] == [True] * len(MARKS)
    two = [{"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}]
    assert shown(two).count("<|im_start|>") == 1 and shown(two).count("<tool_response>") == 2


def test_the_block_form_of_files_is_as_it_was_and_refuses_to_become_the_other(
    tmp_path, monkeypatch
):
    make_few(monkeypatch)
    prepare_files(tmp_path, seed=0, say=lambda _: None)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert "calls" not in manifest["settings"]
    with pytest.raises(ConfigError, match=r"coding.bash.calls=block.*choose another folder"):
        prepare_files(tmp_path, seed=0, say=lambda _: None, calls=Calls.tools)
    prepare_files(tmp_path / "tools", seed=0, say=lambda _: None, calls=Calls.tools)
    assert read_problems(tmp_path / "tools/problems.jsonl")[0].id == "tinyshell/train-0000"
