"""Servers of nodes whose Ray is a fake: nodes that differ, die and join, and strangers."""

import asyncio
import time
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import httpx
import pytest
from ray.exceptions import ActorDiedError

from coding_model_project.errors import ClusterError, ConfigError, SandboxError
from coding_model_project.grading.judge import start_graders
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Call, Isolation, Test
from coding_model_project.verl_ext.cluster import node_sandbox
from coding_model_project.verl_ext.cluster.node_sandbox import NodesSandbox
from coding_model_project.verl_ext.cluster.nodes import Node
from tests.fakes import FakeSandbox, stdin_problem
from tests.unit.sandbox.fusion_servers import fake

pytestmark = pytest.mark.slow


class Cluster:
    """Nodes whose actors are objects of this process; their servers listen on loopback."""

    def __init__(self, monkeypatch, *machines: str):
        self.machines = list(machines or ("seccomp/x", "seccomp/x"))
        self.cpus = 1
        self.down: set[int] = set()
        self.n_lost_at_start = 0
        self.making = fake()
        self.sandboxes: dict[int, FakeSandbox] = {}
        self.judges: dict[int, node_sandbox.NodeServer] = {}
        self.said: list[str] = []
        self.lacks = ""
        monkeypatch.setattr(node_sandbox, "ray", self)
        monkeypatch.setattr(node_sandbox, "alive_nodes", self.nodes)
        for name, value in {"_LOOK_S": 0.02, "_FIRST_WAIT_S": 0.05, "_OPEN_WITHIN_S": 5.0}.items():
            monkeypatch.setattr(node_sandbox, name, value)
        monkeypatch.setattr(node_sandbox, "make_sandbox", lambda config: self.making)

    def nodes(self):
        where = {"address": "127.0.0.1", "port": 1, "gpus": 0, "cpus": self.cpus}
        return [
            Node(id=f"{n + 1:056x}", host=f"node{n}", **where) for n in range(len(self.machines))
        ]

    def remote(self, kind):
        def options(*, scheduling_strategy, **_):
            number = int(scheduling_strategy.node_id, 16) - 1
            return SimpleNamespace(remote=partial(self._actor, kind, number))

        return SimpleNamespace(options=options)

    def kill(self, actor):
        if actor.judge._serving is not None:
            actor.judge._server.should_exit = actor.judge._server.force_exit = True

    async def lose(self, *numbers):
        """Take nodes away, with all that runs there."""
        self.down |= set(numbers)
        for judge in [self.judges[number] for number in numbers]:
            self.kill(SimpleNamespace(judge=judge))
            assert judge._serving is not None
            await judge._serving

    def _actor(self, kind, number, *given):
        judge = kind(*given)

        def method(name):
            async def call(*arguments):
                if number in self.down:
                    raise ActorDiedError
                if self.n_lost_at_start:
                    self.n_lost_at_start -= 1
                    raise ActorDiedError
                if self.lacks:
                    raise ConfigError(self.lacks)
                if name == "serve" and judge._served is None:
                    self.making = self.sandboxes[number] = fake(machine=self.machines[number])
                return await getattr(judge, name)(*arguments)

            return SimpleNamespace(remote=call)

        self.judges[number] = judge
        methods = {name: method(name) for name in ("serve",)}
        return SimpleNamespace(judge=judge, **methods)

    def sandbox(self, **options) -> NodesSandbox:
        config = SandboxConfig(refresh_s=0.05, **options)
        return NodesSandbox(config, join=nullcontext, say=self.said.append)

    async def until(self, line: str) -> None:
        async with asyncio.timeout(30):
            while not any(line in one for one in self.said):
                await asyncio.sleep(0.01)


@pytest.fixture
def cluster(monkeypatch):
    return Cluster(monkeypatch)


@asynccontextmanager
async def graders(cluster):
    async with start_graders(cluster.sandbox(), at_once=1, bare=True) as found:
        yield found


PROBLEMS = [stdin_problem((str(n), str(n)), id=f"toy/{n}") for n in range(20)]


async def judged(graders, n=10):
    """Judge programs of which each prints its input."""
    work = [(problem, f"# {k}") for problem in PROBLEMS for k in range(n)]
    verdicts = await asyncio.gather(*(graders.hidden.grade(*one) for one in work))
    return sum(one.passed for one in verdicts)


async def test_all_nodes_judge_as_one_machine_does(cluster):
    async with graders(cluster) as found:
        assert await judged(found) == 200
        assert "fake/seccomp/x" in found.hidden.identity
    assert "judging on 2 nodes, 2 programs at once (fake/seccomp/x)" in cluster.said
    assert all(one.calls for one in cluster.sandboxes.values())


async def test_a_call_continues_the_one_before_it_and_seconds_exclude_waiting(cluster):
    tests = tuple(Test(Call("f", (n,)), expected=None) for n in range(3))
    shared = replace(stdin_problem(), tests=tests, isolation=Isolation.shared)
    async with graders(cluster) as found:
        verdict = await found.hidden.grade(shared, "f = print")
        assert verdict.isolation is Isolation.shared
        calls = [one for s in cluster.sandboxes.values() for _, one in s.calls]
        (given,) = (one for one in calls if isinstance(one[0], Call))
        assert [one.continues for one in given] == [False, True, True]
        for sandbox in cluster.sandboxes.values():
            sandbox.delay_s = 0.2
        verdict = await found.hidden.grade(PROBLEMS[0], "#")
        assert (verdict.passed, verdict.judge_s) == (True, 0.0)


async def test_a_stranger_is_refused(cluster):
    async with cluster.sandbox() as sandbox, httpx.AsyncClient() as client:
        for one in sandbox._servers.served:
            for path in ("/run_code", "/run_batch", "/metrics"):
                for headers in ({}, {"authorization": "Bearer 0"}):
                    answer = await client.post(one.url + path, json={}, headers=headers)
                    assert answer.status_code == 401


async def test_a_node_that_would_judge_differently_is_named(cluster):
    cluster.machines[1] = "seccomp/y"
    with pytest.raises(ClusterError, match=r"node1 has .*seccomp/y.*, not .*seccomp/x.*, as node0"):
        async with cluster.sandbox():
            pass


async def test_a_node_with_another_source_would_judge_differently(cluster, monkeypatch):
    sources = iter(["a", "b"])
    monkeypatch.setattr(node_sandbox, "source", lambda: next(sources))
    with pytest.raises(ClusterError, match=r"node\d has .*\(b\).*, not .*\(a\)"):
        async with cluster.sandbox():
            pass


async def test_a_node_that_dies_loses_nothing_and_is_had_back(cluster):
    async with graders(cluster) as found:
        for sandbox in cluster.sandboxes.values():
            sandbox.delay_s = 0.01
        work = asyncio.ensure_future(judged(found, 20))
        await asyncio.sleep(0.1)
        await cluster.lose(1)
        await cluster.until("node1 is quarantined, its work goes elsewhere: its judge died")
        cluster.down.clear()
        assert await work == 400
        await cluster.until("node1 judges again")
        await until_used(cluster, found, 1)


async def test_a_node_that_joins_is_used_and_one_that_leaves_is_not(cluster):
    sandbox = cluster.sandbox()
    async with start_graders(sandbox, at_once=1, bare=True) as found:
        cluster.machines.append("seccomp/x")
        await cluster.until("node2 judges too")
        await until_used(cluster, found, 2)
        cluster.machines.append("seccomp/y")
        await cluster.until("node3 is quarantined, its work goes elsewhere: the node would judge")
        del cluster.machines[1:]
        async with asyncio.timeout(30):
            while len(sandbox._servers.served) > 1:
                await asyncio.sleep(0.01)
        assert await judged(found, 3) == 60


async def until_used(cluster, found, number):
    async with asyncio.timeout(30):
        while not any("#" in source for source, _ in cluster.sandboxes[number].calls):
            await found.hidden.grade(PROBLEMS[0], f"# {time.monotonic()}")


async def test_what_leaves_nobody_to_judge(cluster):
    cluster.down |= {0, 1}
    with pytest.raises(SandboxError, match="no node judges: node0: its judge died"):
        async with cluster.sandbox():
            pass
    cluster.cpus = 0
    with pytest.raises(ClusterError, match="no node with a CPU"):
        async with cluster.sandbox():
            pass


async def test_an_outage_of_all_nodes_is_no_score(cluster):
    async with start_graders(cluster.sandbox(retry_s=0.3), at_once=1, bare=True) as found:
        await cluster.lose(0, 1)
        with pytest.raises(SandboxError):
            await found.hidden.grade(PROBLEMS[0], "#")


async def test_a_node_that_cannot_judge_at_the_start_is_left_to_come_back(cluster):
    cluster.down.add(0)
    async with graders(cluster) as found:
        assert await judged(found, 2) == 40
        cluster.down.clear()
        await cluster.until("node0 judges again")
        await until_used(cluster, found, 0)


async def test_a_process_that_is_lost_while_it_starts_is_started_again(monkeypatch):
    cluster = Cluster(monkeypatch, "seccomp/x")
    cluster.n_lost_at_start = 1
    async with cluster.sandbox():
        assert cluster.said == ["judging on 1 nodes, 1 programs at once (fake/seccomp/x)"]


async def test_what_a_node_lacks_is_named_with_the_node(cluster):
    cluster.lacks = "coding.sandbox.python=/opt/x: no such file"
    with pytest.raises(ConfigError, match=r"node\d: coding.sandbox.python=/opt/x"):
        async with cluster.sandbox():
            pass
