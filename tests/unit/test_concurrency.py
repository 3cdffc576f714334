"""Concurrent work: its order, its bound, and the cancellation after a failure."""

import asyncio
from itertools import count

import pytest

from coding_model_project.concurrency import each, in_order


async def test_results_are_in_order_and_few_are_under_way():
    under_way, most = 0, 0

    async def work(number):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01 / (1 + number))
        under_way -= 1
        return number * number

    assert await each(range(9), work, at_once=3) == [n * n for n in range(9)]
    assert most == 3
    await each(range(9), work)
    assert most == 9


async def test_the_first_failure_is_raised_and_stops_the_others():
    cancelled, taken = [], count()

    async def work(number):
        try:
            await asyncio.sleep(0.01 if number == 2 else 10)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        raise ZeroDivisionError(number)

    with pytest.raises(ZeroDivisionError, match="2"):
        await each(taken, work, at_once=4)
    assert sorted(cancelled) == [0, 1, 3]
    assert next(taken) <= 6  # no more than could be under way were taken


async def test_results_come_in_order_while_later_items_are_under_way():
    started = []

    async def work(number):
        started.append(number)
        await asyncio.sleep(0.2 if number == 0 else 0)
        return number

    seen = [(number, len(started)) async for number in in_order(range(9), work, at_once=3)]
    assert [number for number, _ in seen] == [*range(9)]
    assert seen[0] == (0, 9)  # the slow first one holds up nobody


async def test_leaving_early_or_a_failure_cancels_those_under_way():
    cancelled = []

    async def work(number):
        if number == 1:
            raise ZeroDivisionError
        try:
            await asyncio.sleep(0 if number == 0 else 60)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    results = in_order(count(), work, at_once=4)
    assert await anext(results) == 0
    with pytest.raises(ZeroDivisionError):
        await anext(results)
    assert len(cancelled) >= 2
