"""Rates of what runs alone: only what lies between the first batch and the last one counts."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.alone import CALLERS, engine_rate, saturated, steady_rate, table


def test_rate_counts_what_followed_the_first_batch() -> None:
    # three at 10 s, three at 12 s, three at 16 s: six answers took six seconds
    times = [12.0, 10.0, 10.1, 10.15, 12.05, 12.1, 16.0, 15.95, 15.9]
    assert steady_rate(times) == pytest.approx(6 / 6)


def test_one_batch_has_no_rate() -> None:
    with pytest.raises(ValueError, match="3 answers came together: measure for longer"):
        steady_rate([1.0, 1.1, 1.15])


def test_callers_never_pause() -> None:
    busy = most = 0

    async def send() -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.25)
        busy -= 1

    assert asyncio.run(saturated(send, 2)) > 0
    assert most == CALLERS


def test_nothing_counts_before_each_caller_was_answered_once() -> None:
    asked = 0

    async def send() -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(60 if asked == 1 else 0.25)

    with pytest.raises(ValueError, match="0 answers came together"):
        asyncio.run(saturated(send, 1.5))


def test_a_failure_is_raised() -> None:
    async def send() -> None:
        raise RuntimeError("answered 429")

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(saturated(send, 5))
    assert "answered 429" in str(raised.value.exceptions[0])


def test_the_server_is_a_share_of_each_other_subject() -> None:
    lines = table({"engine": [4.0, 1.0, 2.0], "server": [1.9, 0.1, 3.0]}).splitlines()
    assert lines[0] == "engine    2.000 clips/s (4.000, 1.000, 2.000); the server does 95 %"
    assert lines[1] == "server    1.900 clips/s (1.900, 0.100, 3.000)"


def test_the_engine_runs_in_a_process_of_its_own() -> None:
    assert engine_rate(Path("emotion2vec_mini"), 1.5) > 0
