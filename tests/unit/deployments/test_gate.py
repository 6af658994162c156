"""The gate lets one batch's worth of work in, in a fair order."""

import asyncio

from deployments.gate import Ticket, WorkGate


class Callers:
    """Items that enter, and stay."""

    def __init__(self, gate: WorkGate) -> None:
        self._gate = gate
        self.entered: list[str] = []
        self._tickets: list[Ticket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def arrive(self, **costs: int) -> list["asyncio.Task[None]"]:
        """One item for each name and cost."""
        tasks = [asyncio.create_task(self._enter(*item)) for item in costs.items()]
        self._tasks += tasks
        await asyncio.sleep(0.01)
        return tasks

    def start(self) -> bool:
        """A batch takes all that have entered."""
        taken, self._tickets = self._tickets, []
        return self._gate.batch_started(taken)

    async def end(self) -> None:
        """The batch that started first ends."""
        self._gate.batch_ended()
        await asyncio.sleep(0.01)

    async def leave(self) -> None:
        """All go, also those that still wait."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _enter(self, name: str, cost: int) -> None:
        async with self._gate.admitted(cost) as ticket:
            self.entered.append(name)
            self._tickets.append(ticket)
            await asyncio.Event().wait()


async def test_idle_gate_never_waits() -> None:
    callers = Callers(WorkGate(lambda: 100))
    await callers.arrive(big=500)  # even an item above the limit
    assert callers.entered == ["big"]
    await callers.leave()


async def test_arrivals_during_a_batch_enter_together_up_to_the_limit() -> None:
    gate = WorkGate(lambda: 100)
    callers = Callers(gate)
    await callers.arrive(first=10)
    assert callers.start()
    await callers.arrive(a=40, b=40, c=40, d=20)
    assert callers.entered == ["first"]
    assert gate.waiting_work == 140
    await callers.end()
    assert callers.entered == ["first", "a", "b", "d"]  # c does not fit, d still does
    callers.start()
    await callers.end()
    assert callers.entered == ["first", "a", "b", "d", "c"]
    await callers.leave()


async def test_first_in_line_enters_even_above_the_limit() -> None:
    callers = Callers(WorkGate(lambda: 100))
    callers.start()
    await callers.arrive(big=900, small=1)
    await callers.end()
    assert callers.entered == ["big"]
    await callers.leave()


async def test_cancelled_waiter_takes_no_room() -> None:
    gate = WorkGate(lambda: 100)
    callers = Callers(gate)
    callers.start()
    gone, _ = await callers.arrive(gone=100, stays=100)
    gone.cancel()
    await asyncio.sleep(0.01)
    assert gate.waiting_work == 100
    await callers.end()
    assert callers.entered == ["stays"]
    await callers.leave()


async def test_who_leaves_before_a_batch_took_it_gives_its_room_back() -> None:
    callers = Callers(WorkGate(lambda: 100))
    [gone] = await callers.arrive(gone=100)
    await callers.arrive(next=100)
    gone.cancel()  # no batch starts for it, so none will end
    await asyncio.sleep(0.01)
    assert callers.entered == ["gone", "next"]
    await callers.leave()


async def test_short_items_overtake_long_ones_only_for_a_while() -> None:
    now = 0.0
    callers = Callers(WorkGate(lambda: 100, overtake_seconds=0.01, clock=lambda: now))
    callers.start()
    await callers.arrive(long=100)
    now = 0.5
    await callers.arrive(soon=10)
    now = 1.5
    await callers.arrive(late=10)
    for _ in range(3):
        await callers.end()
        callers.start()
    # `late` is behind `long` in line, but fills the room beside `soon` that `long` cannot
    assert callers.entered == ["soon", "late", "long"]
    await callers.leave()


async def test_a_lonely_item_gets_the_whole_machine() -> None:
    callers = Callers(WorkGate(lambda: 100, lanes=2))
    await callers.arrive(first=30)
    assert callers.start()
    await callers.arrive(a=30)
    await callers.end()
    assert callers.entered == ["first", "a"]
    assert callers.start()
    await callers.leave()


async def test_what_one_batch_could_hold_is_done_in_equal_parts() -> None:
    callers = Callers(WorkGate(lambda: 100, lanes=2))
    await callers.arrive(first=30)
    callers.start()
    await callers.arrive(a=30, b=30, c=20, d=20)
    await callers.end()
    assert callers.entered == ["first", "a", "c"]
    assert not callers.start()
    await asyncio.sleep(0.01)
    assert callers.entered == ["first", "a", "c", "b", "d"]
    assert not callers.start()
    await callers.leave()


async def test_two_batches_have_the_machine_one_after_the_other() -> None:
    callers = Callers(WorkGate(lambda: 100, lanes=2))
    await callers.arrive(first=30)
    callers.start()
    await callers.arrive(a=100, b=100)
    await callers.end()
    assert callers.start()  # a is answered in half the time that it would need beside b
    assert callers.entered == ["first", "a"]
    await callers.leave()


async def test_more_than_a_brief_batch_is_done_in_brief_ones_one_after_the_other() -> None:
    callers = Callers(WorkGate(lambda: 100, lanes=2, brief=lambda: 40))
    await callers.arrive(first=30)
    callers.start()
    await callers.arrive(a=30, b=30, c=10, d=60)
    await callers.end()
    assert callers.entered == ["first", "a", "c"]
    assert callers.start()
    await callers.end()
    assert callers.entered == ["first", "a", "c", "b"]
    assert callers.start()
    await callers.end()
    assert callers.entered == ["first", "a", "c", "b", "d"]  # alone, however much it is
    assert callers.start()
    await callers.leave()


async def test_what_a_brief_batch_could_hold_is_done_in_equal_parts() -> None:
    callers = Callers(WorkGate(lambda: 100, lanes=2, brief=lambda: 40))
    await callers.arrive(first=30)
    callers.start()
    await callers.arrive(a=20, b=20)
    await callers.end()
    assert callers.entered == ["first", "a"]
    assert not callers.start()
    await asyncio.sleep(0.01)
    assert callers.entered == ["first", "a", "b"]
    await callers.leave()


async def test_the_work_of_many_brief_batches_is_done_in_equal_parts() -> None:
    callers = Callers(WorkGate(lambda: 400, lanes=2, brief=lambda: 40))
    await callers.arrive(first=30)
    callers.start()
    await callers.arrive(**{f"item{number}": 50 for number in range(5)})
    await callers.end()
    assert callers.entered == ["first", "item0", "item1"]
    assert not callers.start()
    await asyncio.sleep(0.01)
    assert callers.entered == ["first", *(f"item{number}" for number in range(5))]
    await callers.leave()


async def test_much_work_fills_whole_batches_however_short_a_brief_one_is() -> None:
    callers = Callers(WorkGate(lambda: 100, lanes=2, brief=lambda: 40))
    await callers.arrive(first=30)
    callers.start()
    await callers.arrive(**{f"item{number}": 50 for number in range(6)})
    await callers.end()
    assert callers.entered == ["first", "item0", "item1"]
    assert not callers.start()
    await callers.leave()


async def test_brief_batches_are_never_above_the_limit() -> None:
    callers = Callers(WorkGate(lambda: 100, brief=lambda: 1000))
    await callers.arrive(a=60, b=60, c=60)
    assert callers.entered == ["a"]
    callers.start()
    await callers.end()
    assert callers.entered == ["a", "b"]
    await callers.leave()


async def test_much_work_runs_in_lanes() -> None:
    callers = Callers(WorkGate(lambda: 100, lanes=2))
    await callers.arrive(first=100)
    callers.start()
    await callers.arrive(a=100, b=100, c=100)
    await callers.end()
    assert callers.entered == ["first", "a"]
    assert not callers.start()
    await asyncio.sleep(0.01)
    assert callers.entered == ["first", "a", "b"]
    assert not callers.start()
    await asyncio.sleep(0.01)
    assert callers.entered == ["first", "a", "b"]  # both lanes are taken
    await callers.end()
    assert callers.entered == ["first", "a", "b", "c"]
    assert not callers.start()  # beside the other lane's batch, however little waits
    await callers.end()
    await callers.end()
    await callers.arrive(last=10)
    assert callers.start()
    await callers.leave()
