"""The gate lets one batch's worth of work in, in a fair order."""

import asyncio

from deployments.gate import WorkGate


async def _enter(gate: WorkGate, cost: int, name: str, entered: list[str]) -> None:
    await gate.admit(cost)
    entered.append(name)


def _arrive(gate: WorkGate, entered: list[str], **costs: int) -> list["asyncio.Task[None]"]:
    return [asyncio.create_task(_enter(gate, cost, name, entered)) for name, cost in costs.items()]


async def test_idle_gate_never_waits() -> None:
    gate = WorkGate(lambda: 100)
    await asyncio.wait_for(gate.admit(500), 1)  # even an item above the limit


async def test_arrivals_during_a_batch_enter_together_up_to_the_limit() -> None:
    gate, entered = WorkGate(lambda: 100), []
    await gate.admit(10)
    gate.batch_started()
    tasks = _arrive(gate, entered, a=40, b=40, c=40, d=20)
    await asyncio.sleep(0)
    assert entered == []
    assert gate.waiting_work == 140
    gate.batch_ended()
    await asyncio.sleep(0.01)
    assert entered == ["a", "b", "d"]  # c does not fit, d still does
    gate.batch_started()
    gate.batch_ended()
    await asyncio.sleep(0.01)
    assert entered == ["a", "b", "d", "c"]
    await asyncio.gather(*tasks)


async def test_first_in_line_enters_even_above_the_limit() -> None:
    gate, entered = WorkGate(lambda: 100), []
    gate.batch_started()
    tasks = _arrive(gate, entered, big=900, small=1)
    await asyncio.sleep(0)
    gate.batch_ended()
    await asyncio.sleep(0.01)
    assert entered == ["big"]
    gate.batch_started()
    gate.batch_ended()
    await asyncio.gather(*tasks)


async def test_cancelled_waiter_takes_no_room() -> None:
    gate, entered = WorkGate(lambda: 100), []
    gate.batch_started()
    gone, stays = _arrive(gate, entered, gone=100, stays=100)
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    assert gate.waiting_work == 100
    gate.batch_ended()
    await asyncio.wait_for(stays, 1)
    assert entered == ["stays"]


async def test_short_items_overtake_long_ones_only_for_a_while() -> None:
    now = 0.0
    gate, entered = WorkGate(lambda: 100, overtake_seconds=0.01, clock=lambda: now), []
    gate.batch_started()
    tasks = _arrive(gate, entered, long=100)
    await asyncio.sleep(0)
    now = 0.5
    tasks += _arrive(gate, entered, soon=10)
    await asyncio.sleep(0)
    now = 1.5
    tasks += _arrive(gate, entered, late=10)
    await asyncio.sleep(0)
    for _ in range(3):
        gate.batch_ended()
        await asyncio.sleep(0.01)
        gate.batch_started()
    await asyncio.gather(*tasks)
    # `late` is behind `long` in line, but fills the room beside `soon` that `long` cannot
    assert entered == ["soon", "late", "long"]
