"""Judges of nodes behind a fake transport: problems sent, nodes that differ, nodes that die."""

import asyncio
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError

from coding_model_project.data.quality.preflight import Preflight
from coding_model_project.errors import ClusterError, ConfigError, SandboxError
from coding_model_project.grading import node_pool
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.runs import shared_folder
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import ErrorType, Execution, Status
from coding_model_project.verl_ext.cluster import node_judges
from coding_model_project.verl_ext.cluster.node_judge import JudgePlan, NodeFacts, NodeJudge
from coding_model_project.verl_ext.cluster.nodes import Node
from tests.fakes import FakeSandbox, stdin_problem

pytestmark = pytest.mark.slow


def answer(source, given):
    if "input()" in source:  # the probe
        return Execution(status=Status.finished, stdout="2")
    return Execution(status=Status.finished, stdout=source)


class Sandbox(FakeSandbox):
    """A sandbox with the identity of its node."""

    def __init__(self, identities, node):
        super().__init__(answer=answer, identity=identities[node], delay_s=0.002)


class Cluster:
    """A fake of the module `ray`, with nodes whose actors are objects of this process."""

    def __init__(self, monkeypatch, identities=("same", "same"), cpus=(1, 1)):
        self.identities, self.cpus = identities, cpus
        self.down = set()
        self.broken = set()
        self.calls = Counter()
        self.sent = Counter()
        self.sandboxes = {}
        monkeypatch.setattr(node_judges, "ray", self)
        monkeypatch.setattr(node_judges, "alive_nodes", self.nodes)
        monkeypatch.setattr(node_pool, "_FIRST_WAIT_S", 0.02)

    def nodes(self):
        where = {"address": "10.0.0.1", "port": 1, "gpus": 0}
        return [
            Node(id=f"{number + 1:056x}", host=f"node{number}", cpus=cpus, **where)
            for number, cpus in enumerate(self.cpus)
        ]

    def remote(self, judge_class):
        return SimpleNamespace(
            options=lambda scheduling_strategy, **_: SimpleNamespace(
                remote=lambda *given: self._actor(judge_class, scheduling_strategy.node_id, given)
            )
        )

    def kill(self, actor): ...

    def _actor(self, judge_class, node_id, given):
        number = int(node_id, 16) - 1
        judge = judge_class(*given)

        def method(name):
            async def call(*arguments):
                self.calls[number, name] += 1
                if name == "take":
                    self.sent[number, arguments[1].id] += 1
                if number in self.down:
                    raise ActorDiedError
                node_judge.make_sandbox = lambda _: self._sandbox(number)
                outcome = await getattr(judge, name)(*arguments)
                if number in self.down:
                    raise ActorDiedError
                return outcome

            return SimpleNamespace(remote=call)

        from coding_model_project.verl_ext.cluster import node_judge

        return SimpleNamespace(
            **{name: method(name) for name in ("open", "take", "grade", "grade_code", "ping")}
        )

    def _sandbox(self, number):
        sandbox = Sandbox(self.identities, number)
        if number in self.broken:
            sandbox.failures = 10**6
        self.sandboxes[number] = sandbox
        return sandbox


@pytest.fixture(autouse=True)
def real_sandbox_afterwards(monkeypatch):
    from coding_model_project.verl_ext.cluster import node_judge

    monkeypatch.setattr(node_judge, "make_sandbox", node_judge.make_sandbox)


def opened(said):
    how = {"style": PromptStyle.bare, "stop_early": False, "join": nullcontext}
    return node_judges.open_node_judges(SandboxConfig(), **how, say=said.append)


PROBLEMS = [stdin_problem(("", "1"), id=f"toy/{n}") for n in range(20)]


async def judged(graders, n=10):
    work = [(problem, str(k)) for problem in PROBLEMS for k in range(n)]
    return await asyncio.gather(*(graders.hidden.grade(*one) for one in work))


async def test_a_problem_is_sent_once_and_verdicts_are_those_of_one_judge(monkeypatch):
    cluster, said = Cluster(monkeypatch), []
    async with opened(said) as graders:
        verdicts = await judged(graders)
        assert "same" in graders.hidden.identity
    assert [one.passed for one in verdicts] == [k == 1 for _ in PROBLEMS for k in range(10)]
    assert verdicts[0].error is ErrorType.wrong_answer
    assert set(cluster.sent.values()) == {1}
    assert "judging on 2 nodes, 2 programs at once" in said[0]


async def test_a_node_that_would_judge_differently_is_named(monkeypatch):
    Cluster(monkeypatch, identities=("tier-a", "tier-b"))
    with pytest.raises(ClusterError, match=r"node1 has .*tier-b.*, not .*tier-a.*node0"):
        async with opened([]):
            pass


async def test_a_node_that_dies_loses_nothing_and_is_had_back(monkeypatch):
    cluster, said = Cluster(monkeypatch), []
    async with opened(said) as graders:
        work = asyncio.ensure_future(judged(graders, 20))
        while not cluster.sent:
            await asyncio.sleep(0.001)
        cluster.down.add(1)
        while not any("node1 is quarantined" in line for line in said):
            await asyncio.sleep(0.001)
        cluster.down.clear()
        verdicts = await work
        assert sum(one.passed for one in verdicts) == len(PROBLEMS)
        assert any("node1 is quarantined" in line and "its judge died" in line for line in said)
    assert set(cluster.sent.values()) <= {1, 2}


async def test_a_node_that_cannot_judge_at_the_start_is_left_to_come_back(monkeypatch):
    cluster, said = Cluster(monkeypatch), []
    cluster.broken.add(0)
    async with opened(said) as graders:
        assert all(one.results for one in await judged(graders, 2))
        assert not cluster.sent[0, "toy/0"]
        cluster.broken.clear()
        async with asyncio.timeout(60):
            while not any("node0 judges again" in line for line in said):
                await asyncio.sleep(0.01)
        await judged(graders, 20)
    assert any(number == 0 for number, _ in cluster.sent)


async def test_what_leaves_nobody_to_judge(monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.broken |= {0, 1}
    with pytest.raises(SandboxError, match="no node judges: node0: the fake is down"):
        async with opened([]):
            pass
    Cluster(monkeypatch, cpus=(0, 0))
    with pytest.raises(ClusterError, match="no node with a CPU"):
        async with opened([]):
            pass


async def test_what_a_node_lacks_is_named_with_the_node(monkeypatch):
    cluster = Cluster(monkeypatch)

    def lacks(number):
        raise ConfigError("coding.sandbox.python=/opt/x: no such file")

    cluster._sandbox = lacks
    with pytest.raises(ConfigError, match=r"node\d: coding.sandbox.python=/opt/x"):
        async with opened([]):
            pass


async def test_a_node_that_hangs_does_not_hold_up_the_others(monkeypatch):
    """A node on which Ray starts no process, and does not say so."""
    monkeypatch.setattr(node_judges, "_OPEN_WITHIN_S", 0.05)
    closed = []
    hangs = {"name": "node3", "open": asyncio.Event().wait, "close": lambda: closed.append(True)}
    async with asyncio.timeout(60):
        error = await node_judges._opened(SimpleNamespace(**hangs))
    assert isinstance(error, SandboxError) and "no judge started there within" in str(error)
    assert closed


async def test_checkouts_of_one_version_but_another_source_differ(monkeypatch, tmp_path):
    from coding_model_project.verl_ext.cluster import node_judge

    plan = JudgePlan(sandbox=SandboxConfig(), bare=True, stop_early=False, stop_at_limit=True)
    monkeypatch.setattr(node_judge, "make_sandbox", lambda _: FakeSandbox(answer=answer))

    async def facts() -> NodeFacts:
        judge = NodeJudge(plan, cpus=1)
        opened = await judge.open()
        await judge._stack.aclose()
        assert isinstance(opened, NodeFacts), opened
        return opened

    mine = await facts()
    other = tmp_path / "package" / "runs" / "shared_folder.py"
    other.parent.mkdir(parents=True)
    other.write_text("changed")
    monkeypatch.setattr(shared_folder, "__file__", str(other))
    theirs = await facts()
    assert mine.identity == theirs.identity
    difference = node_judges._difference(theirs, mine)
    assert difference is not None and difference.count("Python 3.") == 2


async def test_a_node_checks_problems(monkeypatch):
    from coding_model_project.verl_ext.cluster import node_judge

    plan = JudgePlan(sandbox=SandboxConfig(), bare=False, stop_early=True, stop_at_limit=False)
    monkeypatch.setattr(node_judge, "make_sandbox", lambda _: FakeSandbox(answer=answer))
    judge = NodeJudge(plan, cpus=1)
    problem = stdin_problem(("1", "2"), gold=("print(int(input()) + 1)",), bad=("0",))
    assert isinstance(await judge.preflight(problem, (), 0, 1), SandboxError), "it is not open"
    assert isinstance(await judge.open(), NodeFacts)
    result = await judge.preflight(problem, (), 0, 2)
    await judge._stack.aclose()
    assert isinstance(result, Preflight)
    assert (result.gold_accepted, result.bad.hits, result.passed) == (1, 1, True)
