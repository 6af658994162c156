"""A gate before `@serve.batch`: one batch's worth of work at a time, in a fair order.

`@serve.batch` cuts the next batch while one still runs, so that requests which arrive during
a long batch run as many small ones. Here they wait outside until the running batch ends, and
then enter together, up to the work limit: an idle replica never waits, a busy one fills its
batches.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from time import monotonic

_Waiter = tuple[float, int, "Ticket", asyncio.Future[None]]

BATCHES_FOR_LANES = 3
"""Work for this many batches is done in lanes, and so is what one batch could hold, in equal
parts. In between, one batch after the other with the whole machine is answered sooner."""

BRIEF_BATCHES = 5
"""Work for fewer brief batches is done in those, one after the other with the whole machine. More
of it is a queue that stays, which lanes get done sooner. (Poisson arrivals, simulated: the 95th
percentile over the median is 1.0 times that of one clip after the other, with three 1.2 times.)"""


class Ticket:
    """One item on its way through the gate; compared by identity."""

    __slots__ = ("cost",)

    def __init__(self, cost: int) -> None:
        self.cost = cost


class WorkGate:
    """Admits work up to `limit` per batch; not thread-safe, one event loop.

    Args:
        limit: called for the work that one batch may hold; a single item above it is
            admitted alone.
        overtake_seconds: an item may be overtaken by cheaper ones that arrive this much later
            per unit of its own work, so that a short clip is not held up by long ones, and
            none waits for ever. 0 is the order of arrival.
        lanes: batches that may run beside one another where enough work waits.
        brief: called for the work of a batch that more work would not make more efficient, only
            later for all in it. None: that of the limit.
        clock: seconds, rising.
    """

    def __init__(
        self,
        limit: Callable[[], int],
        overtake_seconds: float = 0.0,
        lanes: int = 1,
        brief: Callable[[], int] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._limit = limit
        self._brief = brief or limit
        self._overtake_seconds = overtake_seconds
        self._lanes = lanes
        self._clock = clock
        self._waiting: list[_Waiter] = []
        self._order = itertools.count()
        self._entered: set[Ticket] = set()
        self._running = 0
        self._wide = False
        self._sharing = False
        self._room = 0

    @property
    def waiting_work(self) -> int:
        """Work of the items that still wait."""
        return sum(ticket.cost for _, _, ticket, future in self._waiting if not future.done())

    @property
    def busy(self) -> bool:
        """Whether a batch runs or is on its way."""
        return bool(self._running or self._entered)

    @asynccontextmanager
    async def admitted(self, cost: int) -> AsyncIterator[Ticket]:
        """Wait until an item of `cost` may enter the next batch; inside, put it into the batch."""
        ticket = Ticket(cost)
        try:
            await self._enter(ticket)
            yield ticket
        finally:
            if ticket in self._entered:
                # its caller went away before a batch took it: the room is for somebody else
                self._entered.remove(ticket)
                self._let_in()

    async def _enter(self, ticket: Ticket) -> None:
        if not self._waiting and self._open:
            if not self._running and not self._entered:
                self._sharing, self._room = False, self._brief_room
            if self._fits(ticket):
                self._entered.add(ticket)
                return
        future = asyncio.get_running_loop().create_future()
        key = self._clock() + ticket.cost * self._overtake_seconds
        heapq.heappush(self._waiting, (key, next(self._order), ticket, future))
        await future

    def batch_started(self, tickets: Iterable[Ticket]) -> bool:
        """The batch function runs with these items.

        Returns:
            Whether it has the machine for itself; otherwise it shares it with the other lanes.
        """
        self._entered.difference_update(tickets)
        self._wide = not self._running and not self._sharing
        self._running += 1
        self._let_in()
        return self._wide

    def batch_ended(self) -> None:
        """A batch started before has ended."""
        self._running -= 1
        self._let_in()

    @property
    def _open(self) -> bool:
        """Whether one more batch may run."""
        return not self._running or (not self._wide and self._running < self._lanes)

    def _let_in(self) -> None:
        """One batch's worth: the first in line always, then whatever still fits."""
        if not self._open:
            return
        if not self._running and not self._entered:
            self._plan()
        kept: list[_Waiter] = []
        while self._waiting:
            waiter = heapq.heappop(self._waiting)
            _, _, ticket, future = waiter
            if future.done():  # its caller went away
                continue
            if self._fits(ticket):
                self._entered.add(ticket)
                future.set_result(None)
            else:
                kept.append(waiter)
        self._waiting = kept  # popped in order, so still a heap

    @property
    def _brief_room(self) -> int:
        return min(self._limit(), self._brief())

    def _plan(self) -> None:
        """Whether what waits is for one batch or for lanes, and how much the first one takes."""
        limit, brief, work = self._limit(), self._brief_room, self.waiting_work
        much = work >= BATCHES_FOR_LANES * limit
        few = not much and brief < work < BRIEF_BATCHES * brief
        several = self._lanes > 1 and len(self._waiting) > 1
        self._sharing = several and not few and (much or work <= limit)
        self._room = limit
        if few:
            self._room = brief
        elif self._sharing and not much:
            self._room = -(-work // self._lanes)

    def _fits(self, ticket: Ticket) -> bool:
        entered = sum(other.cost for other in self._entered)
        room = self._limit() if self._running else self._room
        return not self._entered or entered + ticket.cost <= room
