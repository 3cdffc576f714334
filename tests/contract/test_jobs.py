"""The contract of every back end of `jobs`, through the command line, on real back ends.

A job here is a process that behaves like a recipe but trains nothing (`stand_in`).
tests/end_to_end/test_jobs.py submits, stops and resumes a real training on Ray.
"""

import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import coding_model_project.cli as cli
from coding_model_project.launch.jobs.base import JobState, override
from coding_model_project.launch.jobs.control import JobLog
from tests.contract import clusters
from tests.contract.stand_in import STEPS
from tests.unit.launch.jobs.conftest import git

pytestmark = [pytest.mark.xdist_group("jobs"), pytest.mark.timeout(600)]
_STAND_IN = Path(__file__).with_name("stand_in.py")
_SOON_S = 200.0


@dataclass(frozen=True)
class Place:
    """A back end, and a folder with a repository to ship."""

    options: tuple[str, ...]
    root: Path
    capsys: pytest.CaptureFixture[str]

    def jobs(self, *words: str, code: int = 0) -> str:
        """Run `jobs`; return what it prints."""
        ended = cli.main(["jobs", *words])
        out, err = self.capsys.readouterr()
        assert ended == code, out + err
        return out + err

    def submit(self, name: str, *overrides: str, options: Sequence[str] = (), code: int = 0) -> str:
        options = ["--name", name, "--repo", str(self.root / "repo"), *self.options, *options]
        run = override("coding.run_dir", f"{self.root}/run")
        return self.jobs("submit", *options, "sft", "hardware=cpu", run, *overrides, code=code)

    def state(self, name: str) -> JobState:
        self.jobs("list")
        return JobLog(self.root / "outputs" / "jobs").job(name).state

    def wait(self, name: str, text: str) -> None:
        """Wait until a job has printed something."""
        self.until(name, lambda: text in self.jobs("logs", name))

    def until(self, name: str, condition: Callable[[], bool]) -> None:
        """Wait until something holds; show a job's log if it never does."""
        deadline = time.monotonic() + _SOON_S
        while not condition():
            assert time.monotonic() < deadline, self.jobs("logs", name)
            time.sleep(0.3)


@pytest.fixture(scope="module")
def ray() -> Iterator[tuple[str, ...]]:
    token = secrets.token_hex(32)
    with clusters.ray_head(token) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", token)
        resources = ("--resource", "driver=0.1", "--driver-cpus", "0")
        yield ("--backend", "ray", "--address", url, *resources)


@pytest.fixture(scope="module")
def slurm() -> Iterator[tuple[str, ...]]:
    with clusters.slurm() as conf, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", conf)
        yield ("--backend", "slurm", "--sbatch=--time=20")


@pytest.fixture(scope="module")
def local() -> tuple[str, ...]:
    return ("--backend", "local")


_NO_SLURM = pytest.mark.skipif(not clusters.has_slurm(), reason="no Slurm of Debian's, or not root")


@pytest.fixture(
    params=[
        pytest.param("local", marks=pytest.mark.slow),
        pytest.param("ray", marks=pytest.mark.contract),
        pytest.param("slurm", marks=[pytest.mark.contract, _NO_SLURM]),
    ]
)
def place(request, tmp_path, capsys, monkeypatch) -> Place:
    if request.param != "ray":  # whose head has it: the source that was shipped comes first
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    options = request.getfixturevalue(request.param)
    return make_place(options, tmp_path, capsys, monkeypatch)


def make_place(options, tmp_path, capsys, monkeypatch) -> Place:
    """Make a repository whose only recipe is the stand-in, and go beside it."""
    repo = tmp_path / "repo"
    (repo / "recipes").mkdir(parents=True)
    (repo / "recipes" / "__init__.py").touch()
    shutil.copy(_STAND_IN, repo / "recipes" / "sft.py")
    git(repo, "init", "--quiet")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "first")
    monkeypatch.chdir(tmp_path)
    return Place(options, tmp_path, capsys)


def test_a_job_saves_a_checkpoint_when_it_is_stopped_and_another_goes_on_from_there(place):
    place.submit("first")
    place.wait("first", "step 2\n")
    assert place.state("first") is JobState.running
    assert "first: interrupted" in place.jobs("stop", "first")
    (checkpoint,) = (place.root / "run" / "checkpoints").iterdir()
    saved = int((checkpoint / "model.bin").read_text())
    assert "has ended (interrupted)" in place.jobs("stop", "first")

    place.submit("second", f"{STEPS}={saved + 5}")
    followed = place.jobs("logs", "--follow", "second")
    assert f"step {saved + 1}\n" in followed
    assert f"step {saved}\n" not in followed
    assert f"step {saved + 5}\n" in followed
    assert place.state("second") is JobState.finished

    place.jobs("fetch", "second", "--out", "here")
    assert (place.root / "here" / "run.json").exists()
    assert not (place.root / "here" / "checkpoints").exists()
    place.jobs("fetch", "second", "--out", "here", "--checkpoints")
    assert len(list((place.root / "here" / "checkpoints").iterdir())) == 2


def test_a_job_runs_the_code_as_it_was_submitted_and_its_run_says_which(place):
    repo = place.root / "repo"
    sft = repo / "recipes" / "sft.py"
    sft.write_text(sft.read_text().replace("step {step}", "own step {step}"))
    shipped = place.submit("changed", f"{STEPS}=3")
    assert "with changes" in shipped
    sft.write_text("raise SystemExit('a later edit')")
    assert "own step 3" in place.jobs("logs", "--follow", "changed")
    job = JobLog(place.root / "outputs" / "jobs").job("changed")
    kept = Path(job.folder, "uncommitted.patch").read_text()
    assert "own step" in kept
    assert job.commit == git(repo, "rev-parse", "HEAD").strip()


def test_a_job_that_fails_says_why_and_one_that_is_ended_by_force_is_stopped(place):
    place.submit("wrong", "coding.seed=13")
    assert "error: seed 13" in place.jobs("logs", "--follow", "wrong", code=1)
    assert place.state("wrong") is JobState.failed
    place.submit("long")
    place.wait("long", "step 2\n")
    assert "long: stopped" in place.jobs("stop", "long", "--now")
    assert "already" not in place.submit("long", code=2)  # its name is taken
    table = place.jobs("list", "--out", "jobs.md", "--offline")
    assert table == "jobs.md\n"
    assert "| long | stopped |" in (place.root / "jobs.md").read_text()


@pytest.mark.contract
def test_a_head_refuses_an_expired_token(ray, tmp_path, capsys, monkeypatch):
    place = make_place(ray, tmp_path, capsys, monkeypatch)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    said = place.submit("never", code=2)
    assert said.startswith("error: RAY_AUTH_TOKEN=…: ") and "expired" in said
    assert not (tmp_path / "outputs").exists()


@pytest.mark.contract
@_NO_SLURM
def test_slurm_writes_the_log_into_a_folder_of_any_name(slurm, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (tmp_path / "mine's 100%j").mkdir()
    place = make_place(slurm, tmp_path / "mine's 100%j", capsys, monkeypatch)
    place.submit("short", f"{STEPS}=1")
    assert "step 1\n" in place.jobs("logs", "--follow", "short")


@pytest.mark.slow
def test_a_gpu_that_a_local_job_has_is_not_given_to_another(local, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    place = make_place(local, tmp_path, capsys, monkeypatch)
    place.submit("has", "--gpus", "90,91")
    place.wait("has", "step 1\n")
    said = place.submit("wants", "--gpus", "91", code=2)
    assert "--gpus=91: GPU 91 is in use by the local job has" in said
    place.jobs("stop", "has", "--now")
    place.submit("wants", "--gpus", "91", f"{STEPS}=1")  # its name was not used up
    place.jobs("logs", "--follow", "wants")


# ── jobs that Slurm itself cancels, preempts, requeues, or ends at their time limit ───────────────


_PREEMPTS_S = 240


@pytest.fixture
def on_slurm(slurm, tmp_path, capsys, monkeypatch) -> Place:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return make_place(("--backend", "slurm"), tmp_path, capsys, monkeypatch)


def saved(place: Place) -> list[int]:
    """Return the steps of the run's checkpoints."""
    found = (place.root / "run" / "checkpoints").glob("global_step_*")
    return sorted(int(one.name.rpartition("_")[2]) for one in found)


def number(place: Place, name: str) -> str:
    return JobLog(place.root / "outputs" / "jobs").job(name).handle["id"]


def last_step(place: Place, name: str) -> int:
    steps = [line for line in place.jobs("logs", name).splitlines() if line.startswith("step ")]
    return int(steps[-1].split()[1]) if steps else 0


@pytest.mark.contract
@_NO_SLURM
def test_scancel_of_a_running_job_saves_a_checkpoint_and_the_next_job_goes_on_from_it(on_slurm):
    for attempt in range(1, 6):
        name = f"cancelled-{attempt}"
        on_slurm.submit(name)
        before = max(saved(on_slurm), default=0)
        on_slurm.wait(name, f"step {before + 3}\n")
        subprocess.run(["scancel", number(on_slurm, name)], check=True)
        on_slurm.until(name, lambda name=name: on_slurm.state(name).ended)
        assert on_slurm.state(name) is JobState.stopped
        assert len(saved(on_slurm)) == attempt, on_slurm.jobs("logs", name)
        assert saved(on_slurm)[-1] == last_step(on_slurm, name)
        assert f"step {before}\n" not in on_slurm.jobs("logs", name)  # it resumed


@pytest.mark.contract
@_NO_SLURM
def test_a_preempted_job_saves_is_requeued_by_slurm_and_goes_on(on_slurm):
    on_slurm.submit("spot")
    for attempt in range(1, 4):
        before = max(saved(on_slurm), default=0)
        on_slurm.wait("spot", f"step {before + 3}\n")
        urgent = ["sbatch", "--wait", "--partition=urgent", "--output=/dev/null", "--wrap=sleep 1"]
        subprocess.run(urgent, check=True, timeout=_PREEMPTS_S, capture_output=True)
        assert len(saved(on_slurm)) == attempt, on_slurm.jobs("logs", "spot")
        assert on_slurm.state("spot") in (JobState.pending, JobState.running)
    on_slurm.wait("spot", f"step {saved(on_slurm)[-1] + 1}\n")
    said = on_slurm.jobs("logs", "spot")
    assert all(said.count(f"step {step}\n") == 1 for step in range(1, saved(on_slurm)[-1] + 1))
    assert "spot: interrupted" in on_slurm.jobs("stop", "spot")


@pytest.mark.contract
@_NO_SLURM
def test_a_job_at_its_time_limit_saves_is_requeued_and_goes_on(on_slurm):
    on_slurm.submit("long", options=("--sbatch=--time=2", "--signal-s=80"))
    on_slurm.until("long", lambda: len(saved(on_slurm)) == 1)
    on_slurm.wait("long", f"step {saved(on_slurm)[0] + 1}\n")
    assert on_slurm.jobs("logs", "long").count("step 1\n") == 1
    assert "long: interrupted" in on_slurm.jobs("stop", "long")
    assert len(saved(on_slurm)) == 2
