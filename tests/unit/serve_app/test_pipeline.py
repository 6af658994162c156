"""Passes keep their order, stay bounded, and nothing is left running."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from serve_app.pipeline import both, map_in_order


async def _numbers(count: int, taken: list[int]) -> AsyncIterator[int]:
    for number in range(count):
        taken.append(number)
        yield number


async def test_order_is_kept_though_work_ends_out_of_order() -> None:
    async def work(number: int) -> int:
        await asyncio.sleep(0.01 * (5 - number))
        return number * 10

    result = [value async for value in map_in_order(_numbers(5, []), work, 5)]
    assert result == [0, 10, 20, 30, 40]


async def test_source_is_not_read_ahead_of_a_slow_reader() -> None:
    taken: list[int] = []

    async def work(number: int) -> int:
        return number

    results = map_in_order(_numbers(100, taken), work, 3)
    await anext(results)
    await asyncio.sleep(0.01)
    assert len(taken) <= 4
    await results.aclose()


async def test_failure_of_the_work_cancels_the_rest() -> None:
    cancelled: list[int] = []

    async def work(number: int) -> int:
        if number == 1:
            raise ValueError("bad")
        try:
            await asyncio.sleep(0 if number == 0 else 10)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    results = map_in_order(_numbers(9, []), work, 3)
    assert await anext(results) == 0
    with pytest.raises(ValueError, match="bad"):
        await anext(results)
    assert 2 in cancelled
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_failure_of_the_source_comes_after_what_it_gave() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise RuntimeError("cut")

    async def work(number: int) -> int:
        return number

    results = map_in_order(broken(), work, 2)
    assert await anext(results) == 1
    with pytest.raises(RuntimeError, match="cut"):
        await anext(results)


async def test_two_works_go_on_beside_one_another() -> None:
    met = asyncio.Barrier(2)

    async def work(result: str) -> str:
        await met.wait()
        return result

    assert await both(work("one"), work("other")) == ("one", "other")


async def test_failure_of_one_work_cancels_the_other_and_is_raised_itself() -> None:
    cancelled = asyncio.Event()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("damaged")

    async def goes_on() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with pytest.raises(ValueError, match="damaged"):
        await both(goes_on(), fails())
    assert cancelled.is_set()
