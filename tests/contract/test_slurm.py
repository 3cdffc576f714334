"""Jobs that Slurm itself cancels, preempts, requeues, or ends at their time limit.

Jobs are stand-ins on a real Slurm of one node.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coding_model_project.launch.jobs.base import JobState
from coding_model_project.launch.jobs.control import JobLog
from tests.contract import clusters
from tests.contract.test_jobs import Place, make_place

pytestmark = [
    pytest.mark.contract,
    pytest.mark.xdist_group("jobs"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not clusters.has_slurm(), reason="no Slurm of Debian's, or not root"),
]
_PREEMPTS_S = 240


@pytest.fixture(scope="module", autouse=True)
def slurm() -> Iterator[None]:
    with clusters.slurm() as conf, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", conf)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        yield


@pytest.fixture
def place(tmp_path, capsys, monkeypatch) -> Place:
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


def test_scancel_of_a_running_job_saves_a_checkpoint_and_the_next_job_goes_on_from_it(place):
    for attempt in range(1, 6):
        name = f"cancelled-{attempt}"
        place.submit(name)
        before = max(saved(place), default=0)
        place.wait(name, f"step {before + 3}\n")
        subprocess.run(["scancel", number(place, name)], check=True)
        place.until(name, lambda name=name: place.state(name).ended)
        assert place.state(name) is JobState.stopped
        assert len(saved(place)) == attempt, place.jobs("logs", name)
        assert saved(place)[-1] == last_step(place, name)
        assert f"step {before}\n" not in place.jobs("logs", name)  # it resumed


def test_a_preempted_job_saves_is_requeued_by_slurm_and_goes_on(place):
    place.submit("spot")
    for attempt in range(1, 4):
        before = max(saved(place), default=0)
        place.wait("spot", f"step {before + 3}\n")
        urgent = ["sbatch", "--wait", "--partition=urgent", "--output=/dev/null", "--wrap=sleep 1"]
        subprocess.run(urgent, check=True, timeout=_PREEMPTS_S, capture_output=True)
        assert len(saved(place)) == attempt, place.jobs("logs", "spot")
        assert place.state("spot") in (JobState.pending, JobState.running)
    place.wait("spot", f"step {saved(place)[-1] + 1}\n")
    said = place.jobs("logs", "spot")
    assert all(said.count(f"step {step}\n") == 1 for step in range(1, saved(place)[-1] + 1))
    assert "spot: interrupted" in place.jobs("stop", "spot")


def test_a_job_at_its_time_limit_saves_is_requeued_and_goes_on(place):
    place.submit("long", options=("--sbatch=--time=2", "--signal-s=80"))
    place.until("long", lambda: len(saved(place)) == 1)
    place.wait("long", f"step {saved(place)[0] + 1}\n")
    assert place.jobs("logs", "long").count("step 1\n") == 1
    assert "long: interrupted" in place.jobs("stop", "long")
    assert len(saved(place)) == 2
