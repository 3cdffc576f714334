"""The live view: what is asked for, who may ask, and files that change while it reads them."""

import json
import socket
from contextlib import asynccontextmanager
from dataclasses import asdict

import httpx
import orjson
import pytest

import coding_model_project.cli as cli
from coding_model_project.errors import DataError
from coding_model_project.reports.live import LiveRuns, create_app
from coding_model_project.reports.live_samples import Filters
from coding_model_project.runs.folder import RunFolder
from tests.synthetic_runs import rollout, training, write_run
from tests.tables import tables

CASES = tables("reports")

TOKEN = "a token"
WITH_TOKEN = {"authorization": f"Bearer {TOKEN}"}


def live(*folders):
    return LiveRuns([RunFolder(folder) for folder in folders])


@asynccontextmanager
async def client_of(runs, *, follow=False):
    transport = httpx.ASGITransport(create_app(runs, TOKEN, follow=follow))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as client:
        yield client


def append(folder, *rows, end=b"\n"):
    with (folder / "rollouts.jsonl").open("ab") as file:
        file.write(b"".join(orjson.dumps(rollout(**row)) + b"\n" for row in rows)[:-1] + end)


def names(answer):
    return [row["sample"] for row in answer["rows"]]


FAILED = {"verdict": {"error": "timeout"}, "reward": 0.0}


@pytest.fixture
def run(tmp_path):
    folder = write_run(tmp_path / "run", metrics={1: {"judge/accepted": 0.5}})
    easy, hard = {"problem": "sums/easy"}, {"problem": "code/hard"}
    append(folder, easy | {"sample": "a"}, easy | {"sample": "b"}, hard | {"sample": "c", **FAILED})
    append(folder, hard | {"sample": "d"}, hard | {"sample": "e", "step": 2, **FAILED})
    return folder


# ── who may ask, and what ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/", "/api/overview", "/api/samples", "/nowhere"])
async def test_every_path_asks_for_the_token(run, path):
    async with client_of(live(run)) as client:
        assert (await client.get(path)).status_code == 403
        assert (await client.get(path, params={"token": "another"})).status_code == 403
        assert (await client.get(path, headers=WITH_TOKEN)).status_code != 403


async def test_names_that_were_rebound_and_writes_are_refused(run):
    async with client_of(live(run)) as client:
        foreign = await client.get("/", headers=WITH_TOKEN | {"host": "evil.example"})
        assert foreign.status_code == 400
        assert (await client.get("/", params={"token": TOKEN})).status_code == 200
        assert (await client.head("/api/overview", headers=WITH_TOKEN)).status_code == 200
        for method in ("POST", "PUT", "DELETE"):
            assert (await client.request(method, "/", headers=WITH_TOKEN)).status_code == 405


async def test_a_sample_that_is_not_there_and_a_question_that_makes_no_sense(run):
    name = {"run": 0, "split": "train", "step": 1, "problem": "sums/easy", "sample": "a"}
    async with client_of(live(run)) as client:
        client.headers.update(WITH_TOKEN)
        found = await client.get("/api/sample", params=name)
        assert found.json()["completion"] == "def f():\n    return 1\n"
        assert found.json()["recorded"]["verdict"]["sandbox"].startswith("embedded")
        missing = await client.get("/api/sample", params=name | {"sample": "'"})
        assert missing.status_code == 404
        assert (await client.get("/api/steps", params={"step": "x"})).status_code == 422
        assert (await client.get("/api/steps", params={"page": -1})).status_code == 422
        huge = await client.get("/api/sample", params=name | {"step": 2**70})
        assert huge.status_code == 422


# ── steps, groups, samples ────────────────────────────────────────────────────────────────────────


def test_steps_and_groups_count_all_of_their_samples(run):
    index = live(run).index
    steps = index.steps(Filters())["rows"]
    counts = [(row["step"], row["problems"], row["passed"], row["judged"]) for row in steps]
    assert counts == [(2, 1, 0, 1), (1, 2, 3, 4)]
    (group,) = index.groups(Filters(step=1, error="timeout"))["rows"]
    assert (group["problem"], group["passed"], group["n"], group["found"]) == ("code/hard", 1, 2, 1)
    assert (group["reward"], group["rate"]) == (0.5, pytest.approx(1 / 3))


@pytest.mark.parametrize(("chosen", "expected"), CASES["samples_are_filtered"])
def test_samples_are_filtered(run, chosen, expected):
    assert names(live(run).index.samples(Filters(**chosen))) == expected


def test_samples_are_paged(tmp_path):
    index = live(write_run(tmp_path / "run", rollouts=training(n_steps=2))).index
    pages = [index.samples(Filters(page=page)) for page in range(7)]
    assert {page["n"] for page in pages[:-1]} == {index.n} == {272}
    assert [len(page["rows"]) for page in pages] == [50, 50, 50, 50, 50, 22, 0]


# ── files that change ─────────────────────────────────────────────────────────────────────────────


async def test_what_is_written_meanwhile_is_shown_once_its_line_ends(run):
    async with client_of(live(run), follow=True) as client:
        client.headers.update(WITH_TOKEN)
        first = (await client.get("/api/overview")).json()
        again = await client.get("/api/overview", params={"have": first["version"]})
        assert again.json() == {"version": first["version"]}
        append(run, {"step": 3, "problem": "new/1"}, end=b"")
        partial = await client.get("/api/overview", params={"have": first["version"]})
        assert partial.json() == {"version": first["version"]}
        with (run / "rollouts.jsonl").open("ab") as file:
            file.write(b"\n")
        after = (await client.get("/api/overview", params={"have": first["version"]})).json()
        assert after["choices"]["source"] == ["code", "new", "sums"]
        steps = {one["id"]: one for one in after["charts"]}["accepted"]["data"][-1]["x"]
        assert steps == [1, 2, 3]


def test_a_step_done_again_counts_once(run):
    runs = live(run)
    append(run, {"problem": "sums/easy", "sample": "z", "attempt": 2})
    append(run, {"problem": "sums/easy", "sample": "late", "attempt": 1})
    runs.index.refresh()
    assert names(runs.index.samples(Filters())) == ["e", "z"]
    assert runs.index.n == 2 == sum(tally.n for tally in live(run).index.tallies)


def test_rotated_files_are_read_on(run):
    runs = live(run)
    append(run, {"step": 3, "sample": "f"})
    (run / "rollouts.jsonl").rename(run / "rollouts.0001.jsonl")
    runs.index.refresh()
    everything = ["f", "e", "a", "b", "c", "d"]
    assert names(runs.index.samples(Filters())) == everything
    assert names(live(run).index.samples(Filters())) == everything
    append(run, {"step": 4, "sample": "g"})
    runs.index.refresh()
    assert names(runs.index.samples(Filters())) == ["g", "f", "e", "a", "b", "c", "d"]
    assert runs.index.sample(0, "train", 3, "tinycode/1", "f").step == 3
    assert runs.index.sample(0, "train", 4, "tinycode/1", "g").step == 4
    assert names(live(run).index.samples(Filters())) == ["g", "f", "e", "a", "b", "c", "d"]


def test_files_written_anew_are_read_anew(run):
    runs = live(run)
    partial = run / "partial"
    partial.write_bytes(orjson.dumps(rollout(sample="only")) + b"\n")
    partial.replace(run / "rollouts.jsonl")
    runs.index.refresh()
    assert names(runs.index.samples(Filters())) == ["only"]
    assert runs.index.n == 1


def test_an_evaluation_is_followed_to_its_end(tmp_path):
    folder = write_run(tmp_path / "eval", recipe="evaluation", exit_code=None)
    runs = live(folder)
    rows = [rollout(step=0, split="toy", problem=f"toy/{n}", prompt="P") for n in range(3)]
    rows[0] |= {"verdict": {"error": "ungradable", "detail": "down"}}
    lines = [orjson.dumps(row) + b"\n" for row in rows]
    (folder / "rollouts.jsonl").write_bytes(b"".join(lines[:2]))
    runs.index.refresh()
    (step,) = runs.index.steps(Filters())["rows"]
    assert (step["n"], step["judged"], step["passed"], step["reward"]) == (2, 1, 1, 1.0)
    # At its end it writes them in the problems' order.
    (folder / "partial").write_bytes(b"".join(lines))
    (folder / "partial").replace(folder / "rollouts.jsonl")
    runs.index.refresh()
    assert runs.index.n == 3
    assert asdict(runs.index.sample(0, "toy", 0, "toy/0", "1_0"))["prompt"] == "P"


# ── the command ───────────────────────────────────────────────────────────────────────────────────


def refused(capsys, *arguments):
    assert cli.main(["report", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_what_cannot_be_served_is_refused_in_a_line(tmp_path, run, capsys):
    empty = write_run(tmp_path / "empty")
    assert "--follow needs --serve" in refused(capsys, run, "--follow")
    assert "no such folder" in refused(capsys, tmp_path / "none", "--serve")
    assert "not a run's folder" in refused(capsys, empty / "logs", "--serve")
    assert "no recorded samples" in refused(capsys, empty, "--serve")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port={port}: cannot" in refused(capsys, run, "--serve", "--port", port)
    (run / "rollouts.jsonl").write_text('{"step": 1}\n')
    assert "byte 0: damaged" in refused(capsys, run, "--serve")


@pytest.mark.parametrize(
    "wrong",
    [{"verdict": None}, {"verdict": {"error": ["x"]}}, {"reward": None}, {"step": 2**63}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_value_of_another_type_is_a_damaged_sample(run, wrong):
    row = rollout(problem="sums/odd", sample="z") | wrong
    with (run / "rollouts.jsonl").open("ab") as file:
        file.write(json.dumps(row).encode() + b"\n")
    with pytest.raises(DataError, match=r"sample z of sums/odd: damaged"):
        live(run)
