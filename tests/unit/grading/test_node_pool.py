"""Nodes that fail, die and recover: no work is lost, and fast-failing nodes attract none."""

import asyncio
from collections import Counter

import pytest

from coding_model_project.errors import SandboxError
from coding_model_project.grading import node_pool
from coding_model_project.grading.limiter import CircuitBreaker
from coding_model_project.grading.node_pool import NodePool


class FakeNode:
    """A node that does work after a delay; `broken` is the reason why it cannot."""

    def __init__(self, name, at_once=2, takes_s=0.001):
        self.name, self.at_once, self.takes_s = name, at_once, takes_s
        self.broken = None
        self.poison = set()
        self.did = []
        self.failed = 0
        self.running = self.most_running = 0
        self.revivals = 0

    async def work(self, key):
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.broken or key in self.poison:  # at once, as an open breaker does
                self.failed += 1
                raise SandboxError(self.broken or "poison")
            await asyncio.sleep(self.takes_s)
            if self.broken:  # it died meanwhile
                raise SandboxError(self.broken)
            self.did.append(key)
            return self.name
        finally:
            self.running -= 1

    async def revive(self):
        self.revivals += 1
        if self.broken:
            raise SandboxError(self.broken)


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(node_pool, "_FIRST_WAIT_S", 0.02)


@pytest.fixture
def said():
    return []


def pool_of(nodes, said, **breaker):
    return NodePool(nodes, breaker=CircuitBreaker(**breaker), say=said.append)


async def all_of(pool, keys):
    return await asyncio.gather(*(pool.run(key, lambda node, k=key: node.work(k)) for key in keys))


async def test_samples_of_a_problem_go_to_one_node_and_no_node_gets_more_than_it_takes(said):
    nodes = [FakeNode(name) for name in "abc"]
    async with pool_of(nodes, said) as pool:
        for _ in range(5):  # one after the other, so that their home is free
            for number in range(30):
                await pool.run(f"p{number}", lambda node, n=number: node.work(f"p{n}"))
        homes = [set(node.did) for node in nodes]
        assert sum(map(len, homes)) == 30, "a problem was on two nodes"
        assert all(homes)
        await all_of(pool, [f"p{number % 30}" for number in range(300)])
    assert [node.most_running for node in nodes] == [2, 2, 2]
    assert not said


async def test_an_idle_node_takes_from_the_longest_queue(said):
    slow, fast_one = FakeNode("slow", takes_s=0.05), FakeNode("fast", takes_s=0.001)
    async with pool_of([slow, fast_one], said) as pool:
        await all_of(pool, [f"p{n}" for n in range(200)])
    assert len(fast_one.did) > 150


async def test_a_node_that_fails_fast_draws_nothing_to_itself(said, fast):
    nodes = [FakeNode("a"), FakeNode("b")]
    nodes[0].broken = "breaker open"
    async with pool_of(nodes, said) as pool:
        found = await all_of(pool, [f"p{n}" for n in range(200)])
    assert found == ["b"] * 200
    assert nodes[0].failed <= 2, "no more than it had at once"
    (line,) = said
    assert "a is quarantined" in line and "breaker open" in line


async def test_a_node_that_dies_loses_nothing_and_comes_back(said, fast):
    nodes = [FakeNode("a", takes_s=0.01), FakeNode("b", takes_s=0.01)]
    async with pool_of(nodes, said) as pool:
        keys = [f"p{n}" for n in range(400)]
        work = asyncio.ensure_future(all_of(pool, keys))
        await asyncio.sleep(0.1)
        nodes[0].broken = "its judge died"
        before = len(nodes[0].did)
        await asyncio.sleep(0.2)
        assert len(nodes[0].did) == before
        nodes[0].broken = None
        await work
    done = Counter([*nodes[0].did, *nodes[1].did])
    assert done == Counter(keys)
    assert len(nodes[0].did) > before, "it is used again"
    assert said[0].startswith("a is quarantined") and said[-1] == "a judges again"


async def test_work_that_no_node_can_do_fails_alone(said, fast):
    nodes = [FakeNode("a"), FakeNode("b")]
    for node in nodes:
        node.poison = {"bad"}
    async with pool_of(nodes, said) as pool:
        with pytest.raises(SandboxError, match="poison"):
            await pool.run("bad", lambda node: node.work("bad"))
        found = await all_of(pool, [f"p{n}" for n in range(50)])
    assert set(found) == {"a", "b"}, "both judge on"
    assert not said


async def test_a_node_that_fails_at_what_others_do_is_left_out(said, fast):
    nodes = [FakeNode("a"), FakeNode("b")]
    nodes[0].poison = {f"p{n}" for n in range(0, 400, 2)}  # a full disk: the probe passes
    async with pool_of(nodes, said) as pool:
        for start in range(0, 400, 20):
            await all_of(pool, [f"p{n}" for n in range(start, start + 20)])
    assert any("a is excluded: it failed 3 times" in line for line in said)
    assert len(nodes[0].did) + len(nodes[1].did) == 400
    assert nodes[0].failed <= 2 * node_pool.MAX_STRIKES


async def test_without_any_node_left_all_that_waits_fails_at_once(said, fast):
    nodes = [FakeNode("a"), FakeNode("b")]
    async with pool_of(nodes, said) as pool:
        work = [
            asyncio.ensure_future(pool.run(f"p{n}", lambda node, n=n: node.work(f"p{n}")))
            for n in range(100)
        ]
        await asyncio.sleep(0.01)
        for node in nodes:
            node.broken = "gone"
        async with asyncio.timeout(5):
            found = await asyncio.gather(*work, return_exceptions=True)
        lost = [one for one in found if isinstance(one, SandboxError)]
        assert lost and all(isinstance(one, str | SandboxError) for one in found)
        with pytest.raises(SandboxError):
            await pool.run("p", lambda node: node.work("p"))


async def test_failures_everywhere_stop_all(said, fast):
    nodes = [FakeNode("a"), FakeNode("b")]
    for node in nodes:
        node.poison = {f"p{n}" for n in range(100)}
    async with pool_of(nodes, said, min_samples=5) as pool:
        for number in range(6):
            with pytest.raises(SandboxError):
                await pool.run(f"p{number}", lambda node, n=number: node.work(f"p{n}"))
        n_failed = nodes[0].failed + nodes[1].failed
        with pytest.raises(SandboxError, match="judging stopped"):
            await pool.run("good", lambda node: node.work("good"))
        assert nodes[0].failed + nodes[1].failed == n_failed


async def test_cancelled_work_gives_its_place_back(said):
    node = FakeNode("a", at_once=1, takes_s=10)
    async with pool_of([node], said) as pool:
        running = asyncio.ensure_future(pool.run("x", lambda n: n.work("x")))
        waiting = asyncio.ensure_future(pool.run("y", lambda n: n.work("y")))
        await asyncio.sleep(0.01)
        waiting.cancel()
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        node.takes_s = 0
        async with asyncio.timeout(1):
            assert await pool.run("z", lambda n: n.work("z")) == "a"
