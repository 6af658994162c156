"""What may be in the house at once."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from engine.errors import EmotionError
from serve_app.admission import PACED_TOWARDS, Admission, Approach


def admission(**limits: float) -> Admission:
    values = {"max_requests": 10, "max_bytes": 1_000, "max_audio_seconds": 60.0, **limits}
    return Admission(**values)


def first(house: Admission) -> Approach:
    """The approach of a first pass."""
    house.approaching += 1
    return Approach(house)


async def test_what_is_decoded_counts_as_much_as_audio_did_lately() -> None:
    house = admission(max_audio_seconds=60.0)
    with house.approach() as one, house.approach():
        async with house.audio(30, first=one):
            assert house.approaching == 1
            with pytest.raises(EmotionError, match=r"60\.0 s of audio in flight"), house.approach():
                pass
            with pytest.raises(EmotionError, match=r"60\.0 s"), house.request(10):
                pass
        with house.approach():  # room again
            pass
    assert (house.approaching, house.requests) == (0, 0)


async def test_expectation_alone_refuses_nobody() -> None:
    house = admission(max_audio_seconds=60.0)
    async with house.audio(50, first=first(house)):
        pass
    approaches = [house.approach() for _ in range(64)]
    for approach in approaches:
        approach.__enter__()
    for approach in approaches:
        approach.__exit__(None, None, None)
    assert house.approaching == 0


async def test_first_pass_is_refused_only_by_what_is_in_the_graph() -> None:
    house = admission(max_audio_seconds=60.0)
    with house.approach() as one, house.approach() as other, house.approach() as third:
        async with house.audio(30, first=one), house.audio(29, first=other):
            async with house.audio(30, first=third):
                pass
            assert house.approaching == 0


async def test_later_pass_waits_and_enters_in_order() -> None:
    house = admission(max_audio_seconds=60.0)
    entered: list[str] = []

    async def later(name: str, seconds: float) -> None:
        async with house.audio(seconds, first=None):
            entered.append(name)
            await asyncio.sleep(0.01)

    async with house.audio(20, first=None):
        tasks = [asyncio.create_task(later(*item)) for item in (("a", 30), ("b", 5))]
        await asyncio.sleep(0.02)
        assert entered == []  # b would fit, but a was there first
    await asyncio.gather(*tasks)
    assert entered == ["a", "b"]
    assert house.audio_seconds == pytest.approx(0)


async def test_later_passes_do_not_starve_among_first_ones() -> None:
    house = admission(max_audio_seconds=60.0)
    async with asyncio.timeout(1), house.audio(59, first=first(house)), house.audio(30, first=None):
        # nor is there more room for others because of them
        with pytest.raises(EmotionError, match=r"89\.0 s of audio"):
            house.check_graph()


async def test_eight_files_of_some_passes_come_in_together() -> None:
    house = admission(max_audio_seconds=330.0)

    async def file(late: float) -> None:
        await asyncio.sleep(late)
        with house.request(10), house.approach() as approach:
            await asyncio.sleep(0.01)
            async with asyncio.TaskGroup() as passes:
                passes.create_task(one(approach))
                for _ in range(3):
                    passes.create_task(one(None))

    async def one(first: Approach | None) -> None:
        async with house.audio(30, first):
            await asyncio.sleep(0.1)

    async with asyncio.timeout(5):
        await asyncio.gather(*(file(0.004 * number) for number in range(8)))
    assert house.refused == 0


async def test_a_crowd_is_told_to_come_one_after_another() -> None:
    now = [0.0]
    house = admission(clock=lambda: now[0])  # type: ignore[arg-type]

    def told() -> float:
        with pytest.raises(EmotionError) as refused:
            house.check_graph()
        assert refused.value.retry_after is not None
        return refused.value.retry_after

    async with house.audio(60, first=first(house)):
        assert told() == 1.0  # how often somebody leaves is not known yet
        now[0] += 2.0
    async with house.audio(60, first=first(house)):
        # a place every two seconds
        assert [told() for _ in range(6)] == pytest.approx([2, 4, 6, 8, 10, 10])
        now[0] += 5.0
        assert told() == pytest.approx(7.0)
        now[0] += 100.0
        assert told() == pytest.approx(2.0)


async def test_cancelled_waiter_blocks_nobody() -> None:
    house = admission(max_audio_seconds=10.0)

    async def later() -> None:
        async with house.audio(8, first=None):
            pass

    async with house.audio(9, first=None):
        gone, stays = asyncio.create_task(later()), asyncio.create_task(later())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
    await asyncio.wait_for(stays, 1)


async def test_anything_enters_an_empty_graph() -> None:
    house = admission(max_audio_seconds=1.0)
    for arriving in (first(house), None):
        async with house.audio(500, first=arriving):
            with pytest.raises(EmotionError, match=r"500\.0 s of audio"):
                house.check_graph()


def test_bytes_grow_while_they_come_in() -> None:
    house = admission(max_bytes=1_000)
    with house.request(0) as one, house.request(0) as other:
        one.cover(600)
        other.cover(300)
        with pytest.raises(EmotionError) as caught:
            other.cover(500)
        assert caught.value.error_type == "overloaded"
        assert caught.value.retry_after is not None
    assert (house.requests, house.bytes_held) == (0, 0)


def test_refusal_leaves_no_count_behind() -> None:
    house = admission(max_requests=1)
    held = house.request(10)
    held.__enter__()
    with pytest.raises(EmotionError, match="limit is 1 requests"), house.request(10):
        pass
    held.__exit__(None, None, None)
    assert (house.requests, house.bytes_held, house.refused) == (0, 0, 1)


async def test_a_body_on_its_way_counts_as_well() -> None:
    house = admission(max_audio_seconds=60.0)
    async with house.audio(30, first=first(house)):
        pass
    async with house.audio(35, first=first(house)):
        with house.read(), pytest.raises(EmotionError, match=r"65\.0 s"), house.request(10):
            pass
        with house.request(10):
            pass
    # but whoever takes his time with it keeps nobody out
    with house.read(), house.read(), house.read(), house.request(10):
        pass
    assert house.reading == 0


async def test_the_pace_keeps_the_graph_nearly_full() -> None:
    now = [0.0]
    house = Admission(10, 1_000, 100.0, ingress_replicas=2, clock=lambda: now[0])

    async def pace(seconds: float, passes: int = 4) -> tuple[float, float] | None:
        """With so many passes of one second's stay in the graph, so long together."""
        async with AsyncExitStack() as graph:
            for _ in range(passes):
                await graph.enter_async_context(house.audio(seconds / passes, first=first(house)))
            found = house.pace()
            now[0] += 1.0
        return found

    assert await pace(100) is None  # nothing has left it yet, so nobody knows
    assert await pace(59) is None
    # two ingress replicas, each of which lets one pass out every quarter of a second
    assert await pace(100 * PACED_TOWARDS) == pytest.approx((1 / 8, 0.5))
    assert await pace(60) == pytest.approx((0.6 / PACED_TOWARDS / 8, 0.5))
    assert await pace(110) == pytest.approx((1.1 / PACED_TOWARDS / 8, 0.5))
    house.clock = lambda: 100 * now[0]
    await pace(1)
    assert (await pace(100))[1] == 1.0  # type: ignore[index]


async def test_as_many_requests_as_may_be_there_are_full_as_well() -> None:
    house = admission(max_requests=2)
    async with house.audio(1, first=first(house)):
        await asyncio.sleep(0.01)
    async with house.audio(1, first=first(house)):
        with house.request(10):
            assert house.pace() is None
            with house.request(10):
                assert house.pace() is not None


async def test_too_many_bytes_are_one_bodys_matter() -> None:
    house = admission(max_bytes=100)
    async with house.audio(1, first=first(house)):
        with house.request(90), pytest.raises(EmotionError), house.request(20):
            pass
        assert house.pace() is None
