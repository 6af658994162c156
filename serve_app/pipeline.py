"""Passes through the graph while decoding goes on: in order, a bounded number at a time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
Other = TypeVar("Other")


async def map_in_order(
    items: AsyncIterator[In], work: Callable[[In], Awaitable[Out]], in_flight: int
) -> AsyncGenerator[Out]:
    """Yield `work(item)` in the order of `items`, with at most `in_flight` of them at work.

    The source is not read further while that many wait to be taken, so its memory stays
    bounded. The first failure of the source or the work ends the iteration; whatever was
    started is cancelled then, and when the caller stops iterating.
    """
    queue: asyncio.Queue[asyncio.Future[Out] | None] = asyncio.Queue()
    free = asyncio.Semaphore(in_flight)
    started: set[asyncio.Task[Out]] = set()

    async def feed() -> None:
        try:
            while True:
                await free.acquire()
                item = await anext(items)
                task = asyncio.ensure_future(_await(work(item)))
                started.add(task)
                task.add_done_callback(started.discard)
                queue.put_nowait(task)
        except StopAsyncIteration:
            queue.put_nowait(None)
        except Exception as error:
            failed: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            queue.put_nowait(failed)

    feeder = asyncio.create_task(feed())
    try:
        while (result := await queue.get()) is not None:
            value = await result
            free.release()
            yield value
    finally:
        running = [feeder, *started]
        for task in running:
            task.cancel()
        for task in running:
            with suppress(BaseException):
                await task


async def _await(work: Awaitable[Out]) -> Out:
    return await work


async def both(
    one: Coroutine[Any, Any, Out], other: Coroutine[Any, Any, Other]
) -> tuple[Out, Other]:
    """The results of two works beside one another; where one fails, the other is cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(one), group.create_task(other)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return tasks[0].result(), tasks[1].result()
