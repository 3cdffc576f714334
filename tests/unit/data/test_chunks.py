"""A preflight in chunks: the same result as in one go, resumed from stored results."""

from dataclasses import replace

import orjson
import pytest

from coding_model_project import cli
from coding_model_project.cli import preflight_chunks
from coding_model_project.data.problems import write_problems
from coding_model_project.data.quality.chunks import (
    as_row,
    check_chunks,
    chunks,
    merged,
    of_row,
)
from coding_model_project.data.quality.preflight import preflight
from coding_model_project.errors import SandboxError
from tests.fakes import FakeSandbox, stdin_problem
from tests.unit.data.test_mutants import run

GOLD = "n = int(input())\nif n > 3:\n    print(n * 2)\nelse:\n    print(0)"


def problems(n=30):
    """Good ones, one whose gold fails, one without gold, and two of one id in different chunks."""
    made = [
        stdin_problem(("4", "8"), ("3", "0"), id=f"toy/{i}", gold=(GOLD,), bad=("print(1)",))
        for i in range(n)
    ]
    made[3] = replace(made[3], gold=("print(7)",))
    made[4] = replace(made[4], gold=())
    made[20] = replace(made[20], id="toy/1")
    return made


async def checked(chunk):
    return await preflight(
        chunk.problems, FakeSandbox(answer=run), found=chunk.found, mutants_per_problem=2
    )


async def test_chunks_find_what_one_pass_finds():
    made = problems()
    whole = await preflight(made, FakeSandbox(answer=run), mutants_per_problem=2)
    cut = list(chunks(made, "s"))
    assert len(cut) == 10
    kept = {}
    parts = await check_chunks(cut, checked, known={}, keep=kept.__setitem__, at_once=3)
    assert sorted(parts.complaints) == sorted(whole.complaints)
    assert dict(parts.quarantined) == dict(whole.quarantined)
    same = {"seconds": 0.0, "complaints": (), "quarantined": ()}
    assert replace(parts, **same) == replace(whole, **same)
    again = {key: of_row(orjson.loads(orjson.dumps(as_row(one)))) for key, one in kept.items()}
    assert again == kept

    async def never(chunk):
        raise AssertionError("it is known")

    resumed = await check_chunks(cut, never, known=again, keep=kept.__setitem__, at_once=3)
    assert resumed == parts == merged([kept[chunk.key] for chunk in cut])


def test_what_a_result_depends_on_is_in_its_key():
    made = problems()
    keys = {chunk.key for chunk in chunks(made, "s")}
    assert {chunk.key for chunk in chunks(made, "s")} == keys
    assert not keys & {chunk.key for chunk in chunks(made, "other")}
    changed = [*made[:9], replace(made[9], bad=("print(2)",)), *made[10:]]
    assert len(keys & {chunk.key for chunk in chunks(changed, "s")}) == len(keys) - 1


async def test_a_failure_costs_its_chunk_and_an_outage_ends_soon():
    cut = list(chunks(problems(), "s"))
    kept = {}

    async def once(chunk):
        if chunk is cut[2]:
            raise SandboxError("a hiccup")
        return await checked(chunk)

    with pytest.raises(SandboxError, match=r"1 of 10 chunks could not be checked \(a hiccup\)"):
        await check_chunks(cut, once, known={}, keep=kept.__setitem__, at_once=2)
    assert len(kept) == 9

    asked = []

    async def down(chunk):
        asked.append(chunk)
        raise SandboxError("down")

    with pytest.raises(SandboxError, match="10 of 10"):
        await check_chunks(cut, down, known={}, keep=kept.__setitem__, at_once=1)
    assert len(asked) == 3


def test_the_command_resumes_from_its_journal(tmp_path, monkeypatch, capsys):
    made = [one for one in problems() if one.id not in ("toy/1", "toy/3", "toy/4")]
    write_problems(tmp_path / "p.jsonl", made)
    command = ["data", "preflight", "mine", "--path", str(tmp_path / "p.jsonl"), "--json"]
    kept = ["--journal", str(tmp_path / "kept.jsonl")]

    def with_sandbox(fake):
        monkeypatch.setattr(preflight_chunks, "embedded_sandbox", lambda *_: fake)

    with_sandbox(FakeSandbox(answer=run))
    assert cli.main(command) == 0
    whole = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    with_sandbox(FakeSandbox(answer=run, failures=1))
    assert cli.main([*command, *kept]) == 3
    assert "repeat the command with --journal FILE" in capsys.readouterr().err
    sandbox = FakeSandbox(answer=run)
    with_sandbox(sandbox)
    assert cli.main([*command, *kept]) == 0
    captured = capsys.readouterr()
    assert "resuming with 8 of 9 chunks" in captured.err
    assert len(sandbox.calls) == 9, (
        "the three problems of the chunk that failed, gold, bad and idle"
    )
    assert orjson.loads(captured.out.splitlines()[-1]) | {"seconds": 0} == whole | {"seconds": 0}
