import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest
from _pytest.nodeid import NodeId

import tests.composed_once  # noqa: F401 - a minute of a run less

# What a test process makes mostly lives until its end. Python's own thresholds cost a sixth of its CPU
# seconds, and half of those of the collection of tests.
gc.set_threshold(100_000, 20, 10)

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.register_profile("check", deadline=None, max_examples=20)  # make check
hypothesis.settings.load_profile("any machine")

# Ray reads it when it is imported, as some test modules do: nodes of this machine are at 127.0.0.1.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

# A shell's background jobs ignore Ctrl-C, and so would the runs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _shared(item: pytest.Item) -> str | None:
    """Return the resource that a test shares with others: Ray, verl's imports or a browser.

    One process of `pytest -n` runs these tests in order. So each resource starts once, and at most two
    trainings need memory.
    """
    if "in_ray" in getattr(item, "fixturenames", ()):
        return "ray"
    return next((name for name in ("verl", "browser") if item.get_closest_marker(name)), None)


def _order(item: pytest.Item) -> int:
    """Sort long groups first: each has a process of `pytest -n` to itself, while it lasts."""
    group = item.get_closest_marker("xdist_group")
    first = ("ray", "verl", "cluster", "containers")
    return first.index(group.args[0]) if group and group.args[0] in first else len(first)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Group tests that share a slow resource into one process, and start with the longest."""
    for item in items:
        if (shared := _shared(item)) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(shared))
    items.sort(key=_order)
    yield
    # xdist 3.8 writes the group where pytest 9.2 no longer looks for a test's name.
    for item in items:
        if named := vars(item).get("_nodeid"):
            item._id = NodeId.parse(named)


_TICKS = os.sysconf("SC_CLK_TCK")


def _cpu_s() -> float:
    """CPU seconds of this process and all that it started, whether they have ended or not."""
    total_s, pids = sum(os.times()[:4]), [str(os.getpid())]
    while pids:
        for pid in _children(pids.pop()):
            pids.append(pid)
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total_s += sum(map(int, fields[11:15])) / _TICKS
    return total_s


def _children(pid: str) -> Iterator[str]:
    """Yield the ids of a process's children; it and its threads may end meanwhile."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield from (task / "children").read_text().split()


_cpu_s_before = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Record the CPU seconds since the last test's end, for `tests.durations`.

    Those of the first test include the start of its process.
    """
    if call.when == "teardown":
        stash, now_s = item.config.stash, _cpu_s()
        item.user_properties.append(("cpu_s", round(now_s - stash.get(_cpu_s_before, 0.0), 2)))
        stash[_cpu_s_before] = now_s


@pytest.fixture(scope="session", autouse=True)
def _logs_and_kernels_go_with_the_tests():
    """Ray leaves its logs, and torch compiled kernels, where one finds them after a run."""
    folder = tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True)
    with folder as path, pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_TMPDIR", path)
        environment.setenv("RAY_worker_niceness", "0")  # at Ray's 15 they wait for all other tests
        environment.setenv("TORCHINDUCTOR_CACHE_DIR", f"{path}/inductor")
        yield


@pytest.fixture(autouse=True)
def _no_judge_is_left_in_the_background():
    """Other tests count the processes of this one."""
    yield
    if (background := sys.modules.get("coding_model_project.concurrency")) is not None:
        background.close_all()


@pytest.fixture(autouse=True, scope="module")
def _rooms_end_with_their_module():
    """Other tests count the keepers of rooms."""
    yield
    if (rooms := sys.modules.get("tests.unit.harbor.places")) is not None:
        rooms.end_rooms()


@pytest.fixture(scope="session")
def cpu_platform():
    """verl on its CPU platform, as a recipe would set it up."""
    from coding_model_project.launch.device import prepare_environment
    from coding_model_project.verl_ext.cpu_plugin import check_cpu_plugin

    prepare_environment("cpu", alone=True)
    check_cpu_plugin()


@pytest.fixture(autouse=True)
def _verl_on_its_cpu_platform(request):
    """Whichever test imports verl first decides for all: the platform must be chosen before."""
    if request.node.get_closest_marker("verl"):
        request.getfixturevalue("cpu_platform")
