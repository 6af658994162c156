"""A gate before `@serve.batch`: one batch's worth of work at a time, in a fair order.

`@serve.batch` cuts the next batch while one still runs, so that requests which arrive during
a long batch run as many small ones. Here they wait outside until the running batch ends, and
then enter together, up to the work limit: an idle replica never waits, a busy one fills its
batches.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from time import monotonic

_Waiter = tuple[float, int, int, asyncio.Future[None]]


class WorkGate:
    """Admits work up to `limit` per batch; not thread-safe, one event loop.

    Args:
        limit: called for the work that one batch may hold; a single item above it is
            admitted alone.
        overtake_seconds: an item may be overtaken by cheaper ones that arrive this much later
            per unit of its own work, so that a short clip is not held up by long ones, and
            none waits for ever. 0 is the order of arrival.
        clock: seconds, rising.
    """

    def __init__(
        self,
        limit: Callable[[], int],
        overtake_seconds: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._limit = limit
        self._overtake_seconds = overtake_seconds
        self._clock = clock
        self._waiting: list[_Waiter] = []
        self._order = itertools.count()
        self._running = False
        self._admitted = 0

    @property
    def waiting_work(self) -> int:
        """Work of the items that still wait."""
        return sum(cost for _, _, cost, future in self._waiting if not future.done())

    async def admit(self, cost: int) -> None:
        """Return when an item of `cost` may enter the next batch."""
        if not self._running and not self._waiting and self._fits(cost):
            self._admitted += cost
            return
        future = asyncio.get_running_loop().create_future()
        key = self._clock() + cost * self._overtake_seconds
        heapq.heappush(self._waiting, (key, next(self._order), cost, future))
        await future

    def batch_started(self) -> None:
        """The batch function runs: nobody enters until `batch_ended`."""
        self._running = True

    def batch_ended(self) -> None:
        """Let the next batch's worth in: the first in line always, then whatever still fits."""
        self._running = False
        self._admitted = 0
        kept: list[_Waiter] = []
        while self._waiting:
            waiter = heapq.heappop(self._waiting)
            _, _, cost, future = waiter
            if future.done():  # its caller went away
                continue
            if self._fits(cost):
                self._admitted += cost
                future.set_result(None)
            else:
                kept.append(waiter)
        self._waiting = kept  # popped in order, so still a heap

    def _fits(self, cost: int) -> bool:
        return self._admitted == 0 or self._admitted + cost <= self._limit()
