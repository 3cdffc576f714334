"""An evaluation in its folder: what it leaves, how it goes on, what it refuses. No process is started."""

import asyncio
import json
from dataclasses import replace

import pytest

from coding_model_project.configs.schema import coding_of, evaluation_settings, new_config
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import (
    ConfigError,
    DataError,
    GenerationError,
    PromptError,
    SandboxError,
)
from coding_model_project.evaluation.backends.generation import Completion
from coding_model_project.evaluation.evaluate import evaluate, gather
from coding_model_project.evaluation.rejudging import Given, rejudge_evaluation
from coding_model_project.evaluation.results import read_evaluation
from coding_model_project.reports import write_report
from coding_model_project.reports.chart_lines import RunTally
from coding_model_project.reports.run_page import run_facts
from coding_model_project.runs.folder import RunFolder, State, sole_writer
from coding_model_project.runs.overview import line
from coding_model_project.runs.rollouts import read_rollouts
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from tests.fakes import stdin_problem

pytestmark = pytest.mark.slow

N_PROBLEMS, N_SAMPLES = 6, 4


class Writer:
    """A back end whose answers depend on problem and seed; a program is its own output."""

    identity = "a writer"
    repeatable = True

    def __init__(self, concurrency=3, fails_after=None, error=None, mute=False):
        self.concurrency = concurrency
        self.fails_after, self.error, self.mute = fails_after, error, mute
        self.asked = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def check(self, sampling):
        return ()

    async def complete(self, messages, sampling, seed):
        if self.fails_after is not None and len(self.asked) >= self.fails_after:
            raise self.error or GenerationError("the server is gone")
        self.asked.append(seed)
        await asyncio.sleep(seed % 3 / 1000)
        number = messages[-1]["content"]
        text = "" if self.mute else number if seed % 2 else f"{number}!"
        return Completion(text=text, n_tokens=len(text), truncated=seed % 5 == 0)


class Down:
    """A sandbox that is out of order."""

    identity = "down"

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def run(self, *_, **__):
        raise SandboxError("out of order")


def config(problems, folder, sandbox="tests.fakes:FakeSandbox", seed=1, **evaluation):
    evaluation = {"protocol": "sampled", "n": N_SAMPLES} | evaluation
    return new_config(
        {"run_dir": str(folder), "prompt": "bare", "seed": seed, "sandbox": {"name": sandbox}},
        {"model": "writer", "datasets": [f"toy={problems}"], **evaluation},
    )


def run(config, backend):
    said = []
    metrics = evaluate(
        evaluation_settings(coding_of(config)),
        backend,
        config=config,
        command=["test"],
        say=said.append,
        report=write_report,
    )
    return metrics, "\n".join(said)


def judged(folder):
    """Return an evaluation's results by sample, without times."""
    results = read_evaluation(folder).results
    plain = {(r.problem, r.sample): replace(r, at=0, judge_s=0, verdict={}) for r in results}
    assert len(plain) == len(results), "a sample counted twice"
    return plain


def test_all_that_it_leaves(problems, tmp_path):
    metrics, said = run(config(problems, tmp_path / "run"), Writer())
    toy = metrics["toy"]
    assert toy["samples"] == toy["graded"] == N_PROBLEMS * N_SAMPLES
    assert list(toy["pass@k"]) == ["1", "2", "4"]
    assert toy["pass@k"]["1"]["value"] == pytest.approx(toy["accepted"])
    assert toy["truncated"] > 0
    assert "pass@4" in said
    evaluation = read_evaluation(tmp_path / "run")
    assert (evaluation.model, evaluation.seed, evaluation.protocol) == ("writer", 1, "sampled")
    folder = RunFolder(tmp_path / "run")
    assert folder.state is State.finished
    assert line(folder).recipe == "baseline"
    assert len(list(read_rollouts(folder.path))) == N_PROBLEMS * N_SAMPLES
    assert json.loads(folder.summary.read_text())["samples"] == N_PROBLEMS * N_SAMPLES
    assert "toy/3" in (folder.path / "qa_logs" / "toy.md").read_text()
    assert "samples are on this page" in (folder.path / "report.html").read_text()
    facts = dict(run_facts(folder, RunTally(), {}, {}))
    assert (facts["state"], facts["model"]) == ("finished", "writer") and "pass@4" in facts["toy"]
    again, said = run(config(problems, tmp_path / "run"), Writer(fails_after=0))
    assert again == metrics
    assert "has finished" in said


def test_a_stopped_evaluation_goes_on_to_the_same_result(problems, tmp_path):
    run(config(problems, tmp_path / "whole"), Writer(concurrency=1))
    with pytest.raises(GenerationError):
        run(config(problems, tmp_path / "run"), Writer(fails_after=10))
    completions = tmp_path / "run" / "completions.jsonl"
    n_kept = len(completions.read_bytes().splitlines())
    for file in (
        completions,
        tmp_path / "run" / "results.jsonl",
    ):  # as a kill amid a write leaves them
        file.write_bytes(file.read_bytes()[:-20])
    second = Writer()
    run(config(problems, tmp_path / "run"), second)
    assert len(second.asked) == N_PROBLEMS * N_SAMPLES - n_kept + 1
    assert judged(tmp_path / "run") == judged(tmp_path / "whole")
    assert len(RunFolder(tmp_path / "run").attempts()) == 2


def test_shards_are_one_evaluation_when_put_together(problems, tmp_path):
    run(config(problems, tmp_path / "whole"), Writer())
    parts = [tmp_path / f"part{n}" for n in range(3)]
    for n, part in enumerate(parts):
        run(config(problems, part, shard=f"{n}/3"), Writer())
    for name in ("completions.jsonl", "results.jsonl"):  # as a kill amid a write leaves them
        with (parts[1] / name).open("ab") as file:
            file.write(b'{"dataset": "to')
    whole = config(problems, tmp_path / "merged")
    with pytest.raises(ConfigError, match="expected 0/3, 1/3, 2/3"):
        gather(evaluation_settings(coding_of(whole)), parts[:2], say=print)
    gather(evaluation_settings(coding_of(whole)), parts, say=print)
    metrics, _ = run(whole, Writer(fails_after=0))
    assert judged(tmp_path / "merged") == judged(tmp_path / "whole")
    assert metrics["toy"]["samples"] == N_PROBLEMS * N_SAMPLES
    hashes = {read_evaluation(tmp_path / name).protocol_hash for name in ("whole", "merged")}
    assert len(hashes) == 1
    other = evaluation_settings(coding_of(config(problems, tmp_path / "other", seed=2)))
    run(config(problems, tmp_path / "odd", seed=2, shard="1/3"), Writer())
    with pytest.raises(ConfigError, match="seed differs"):
        gather(other, [parts[0], tmp_path / "odd", parts[2]], say=print)


def test_a_model_that_says_nothing_has_no_code(problems, tmp_path):
    metrics, said = run(config(problems, tmp_path / "run"), Writer(mute=True))
    assert metrics["toy"]["errors"]["no_code"] == 1
    assert "24 of 24 answers have no token" in said  # it may be the server that says nothing
    assert metrics["toy"]["ungradable"] == 0
    assert metrics["toy"]["tokens"]["total"] == 0


@pytest.mark.parametrize("model", ["qwen2.5-coder:1.5b", "/models/qwen.gguf"])
def test_a_servers_name_of_a_model_is_no_name_of_the_hub(problems, tmp_path, model):
    """Ollama's names have a tag, and those of llama.cpp are paths."""
    served = {"model": model, "base_url": "http://localhost:9/v1"}
    metrics, _ = run(config(problems, tmp_path / "run", **served), Writer())
    assert metrics["toy"]["graded"] == 24
    metrics, _ = run(config(problems, tmp_path / "here", model=model), Writer())
    assert metrics["toy"]["graded"] == 24


def test_a_prompt_that_is_too_long_is_no_score(problems, tmp_path):
    backend = Writer(fails_after=20, error=PromptError("too long"))
    metrics, said = run(config(problems, tmp_path / "run"), backend)
    assert "toy: 4 of 24 prompts got no answer and are in no rate (PromptError: too long)" in said
    assert (metrics["toy"]["graded"], metrics["toy"]["ungradable"]) == (20, 4)
    assert metrics["toy"]["refused"] == 4
    assert metrics["toy"]["pass@k"]["4"]["problems"] == 5
    with pytest.raises(ConfigError, match="no prompt was answered"):
        run(config(problems, tmp_path / "none"), Writer(fails_after=0, error=PromptError("no")))
    assert json.loads((tmp_path / "none" / "metrics.json").read_text())["toy"]["accepted"] is None
    assert line(RunFolder(tmp_path / "none")).result == ""


def test_an_outage_of_the_sandbox_is_judged_later_and_nothing_generated_twice(problems, tmp_path):
    backend = Writer()
    down = "tests.unit.evaluation.test_evaluate:Down"
    with pytest.raises(SandboxError, match="24 of 24 samples"):
        run(config(problems, tmp_path / "run", sandbox=down), backend)
    assert RunFolder(tmp_path / "run").state is State.failed
    works = config(problems, tmp_path / "run")
    works.coding.force = True  # another sandbox is another configuration
    metrics, _ = run(works, Writer(fails_after=0))
    assert metrics["toy"]["graded"] == N_PROBLEMS * N_SAMPLES
    run(config(problems, tmp_path / "whole"), Writer())
    assert judged(tmp_path / "run") == judged(tmp_path / "whole")


def test_a_folder_has_one_evaluation_at_a_time_and_of_the_same_problems(problems, tmp_path):
    with (
        sole_writer(tmp_path / "run", "evaluation"),
        pytest.raises(ConfigError, match="another evaluation"),
    ):
        run(config(problems, tmp_path / "run"), Writer())
    with pytest.raises(GenerationError):
        run(config(problems, tmp_path / "run"), Writer(fails_after=10))
    problems.write_text(problems.read_text().replace('"statement":"5"', '"statement":"five"'))
    with pytest.raises(ConfigError, match="other data or another model"):
        run(config(problems, tmp_path / "run"), Writer())


def contents(folder):
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_refused_command_changes_nothing(problems, tmp_path):
    """`force` does not mix samples of two protocols, models or data sets, so no message advises it."""
    folder = tmp_path / "run"
    first, _ = run(config(problems, folder), Writer())
    before = contents(folder)
    longer = tmp_path / ("a-long-name-" * 20) / "toy.jsonl"
    longer.parent.mkdir()
    longer.write_bytes(problems.read_bytes().replace(b'"5"', b'"five"'))
    for changes, says in (
        ({"n": 8}, r"\(coding\.evaluation\.n: 4 → 8\)"),
        ({"temperature": 0.5, "concurrency": 2}, r"temperature: None → 0.5"),
        ({"seed": 2}, r"coding\.seed: 1 → 2"),
        ({"model": "other"}, r"model: writer → other"),
        ({"datasets": [f"toy={longer}"]}, r"datasets: .{,60} → .{,60}\)"),
        ({"shard": "0/2"}, r"shard: None → 0/2"),
        ({"shard": "19/20"}, r"has no problems"),
    ):
        for force in (False, True):
            changed = config(problems, folder, **changes)
            changed.coding.force = force
            with pytest.raises(ConfigError, match=says) as caught:
                run(changed, Writer())
            assert len(message := str(caught.value)) < 400
            assert "force" not in message
    assert contents(folder) == before
    assert RunFolder(folder).state is State.finished
    assert run(config(problems, folder), Writer(fails_after=0))[0] == first


def test_samples_of_another_version_are_not_added_to(problems, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(GenerationError):
        run(config(problems, folder), Writer(fails_after=10))
    info = json.loads((folder / "run_info.json").read_text())
    info["protocol"] |= {"hash": "0", "grader_version": "1"}
    (folder / "run_info.json").write_text(json.dumps(info))
    before = contents(folder)
    with pytest.raises(ConfigError, match=r"started otherwise \(grader_version: 1 → \d+\)"):
        run(config(problems, folder), Writer())
    assert contents(folder) == before


def test_damage_is_named_by_file_and_line(problems, tmp_path):
    with pytest.raises(GenerationError):
        run(config(problems, tmp_path / "run"), Writer(fails_after=10))
    for name, number in (("completions.jsonl", 3), ("results.jsonl", 2)):
        file = tmp_path / "run" / name
        before = file.read_bytes()
        lines = before.splitlines(keepends=True)
        lines[number - 1] = lines[number - 1][:30] + b"\n"
        file.write_bytes(b"".join(lines))
        with pytest.raises(DataError, match=rf"{name}, line {number}: damaged"):
            run(config(problems, tmp_path / "run"), Writer())
        file.write_bytes(before)
    twice = tmp_path / "run" / "completions.jsonl"
    twice.write_bytes(twice.read_bytes() + twice.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(DataError, match="a duplicate"):
        run(config(problems, tmp_path / "run"), Writer())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PAR1 this is no parquet", r"toy\.parquet"),
        (b'{"id": "toy/1", "split": "te', r"toy\.jsonl:1"),
        (b'{"id": "toy/1", "split": "test", "statement": "x"}\n', "'?tests'? is missing"),
    ],
)
def test_unusable_data_is_named_before_anything_is_made(content, says, tmp_path):
    data = tmp_path / ("toy.parquet" if content.startswith(b"PAR1") else "toy.jsonl")
    data.write_bytes(content)
    backend = Writer()
    with pytest.raises((DataError, ConfigError), match=says):
        run(config(data, tmp_path / "run"), backend)
    assert not backend.asked
    assert not (tmp_path / "run" / "run.json").exists()


def test_splits_of_a_file_are_counted_and_chosen(tmp_path):
    """A file may hold training problems too, which a held-out score must not count in silence."""
    made = [
        stdin_problem(("", str(i)), ("x", str(i)), id=f"toy/{i}", statement=str(i), split=split)
        for i, split in enumerate(["train", "train", "val", "validation", "validation", "test"])
    ]
    file = tmp_path / "bank.jsonl"
    write_problems(file, made)
    said = run(config(file, tmp_path / "all"), Writer())[1]
    assert "toy: 6 problems (" in said
    assert "; splits train 2, validation 3, test 1\n" in said
    metrics, said = run(config(file, tmp_path / "some", split="validation", limit=2), Writer())
    assert "; split validation\n" in said
    assert metrics["toy"]["problems"] == 2
    assert {problem for problem, _ in judged(tmp_path / "some")} == {"toy/2", "toy/3"}
    given = Given(sandbox=SandboxConfig(name="tests.fakes:FakeSandbox"), dry_run=True)
    again = rejudge_evaluation(tmp_path / "some", given)
    assert again.samples == 2 * N_SAMPLES
    with pytest.raises(ConfigError, match=r"split=tests \(--split\)"):
        run(config(file, tmp_path / "none", split="tests"), Writer())


def test_a_run_from_before_a_key_existed_goes_on(problems, tmp_path):
    run(config(problems, tmp_path / "run"), Writer())
    path = RunFolder(tmp_path / "run").config
    older = path.read_text().replace("    split: null\n", "")
    assert older != path.read_text()
    path.write_text(older)
    run(config(problems, tmp_path / "run"), Writer(fails_after=0))


def test_settings_that_make_no_sense(problems, tmp_path):
    for settings, says in (
        ({"protocol": "pass@1"}, "greedy, sampled, budget"),
        ({"temperature": 0}, "would be identical"),
        ({"shard": "4/4"}, "shard=4/4"),
        ({"limit": 0}, "coding.evaluation.limit=0"),
        ({"nn": 2}, "coding.evaluation.nn"),
        ({"datasets": [f"toy={problems}"] * 2}, "named twice"),
        ({"datasets": ["humanevil"]}, "no such data set"),
    ):
        with pytest.raises(ConfigError, match=says):
            run(config(problems, tmp_path / "run", **settings), Writer())
