"""Decoding in processes: bounded, isolated, cancellable, and the same as without them."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from sound_files import RATE, encode, voice, wav

from engine.audio import DecodeLimits, DecodeRequest, Pass, PcmFormat, SourceReport, load
from engine.audio.pool import DecodeJob, DecodePool
from engine.errors import EmotionError

LONG = wav(np.tile(voice(10.0), 18))
"""Three minutes: more than sockets and a waiting worker hold."""


@asynccontextmanager
async def running(workers: int = 1, **limits: float) -> AsyncIterator[DecodePool]:
    pool = DecodePool(workers, DecodeLimits(**limits))
    pool.start()
    try:
        yield pool
    finally:
        await pool.close()


async def heard(
    pool: DecodePool, body: object, request: DecodeRequest | None = None
) -> tuple[list[Pass], tuple[SourceReport, ...]]:
    async with await pool.open(body, request or DecodeRequest()) as job:
        passes = [excerpt async for excerpt in job]
        return passes, job.reports


async def heard_rest(job: DecodeJob) -> list[Pass]:
    return [excerpt async for excerpt in job]


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether any of its threads still runs: until then its files are open."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return any("\nState:\tZ" not in (t / "status").read_text() for t in tasks.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False


def peak_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


async def test_passes_and_reports_are_those_of_the_same_process() -> None:
    stereo = np.stack([voice(12.0), voice(12.0, pitch=200)], 1)
    requests = [
        DecodeRequest(),
        DecodeRequest(channels="split", pass_seconds=6.0),
        DecodeRequest(channels=1, start=1.5, end=9.25),
        DecodeRequest(channels=0, pcm=PcmFormat("pcm_s16le", RATE, 2)),
    ]
    async with running() as pool:
        for request in requests:
            body = stereo.tobytes() if request.pcm else wav(stereo)
            passes, reports = await heard(pool, body, request)
            expected, expected_reports = load(io.BytesIO(body), request)
            assert reports == expected_reports
            assert len(passes) == len(expected)
            for one, other in zip(passes, expected, strict=True):
                assert (one.index, one.channel, one.start) == (
                    other.index,
                    other.channel,
                    other.start,
                )
                assert one.samples.dtype == other.samples.dtype
                np.testing.assert_array_equal(one.samples, other.samples)


async def test_a_body_may_be_a_file() -> None:
    async with running() as pool:
        with tempfile.TemporaryFile() as file:
            file.write(wav(voice(2.0)))
            passes, _ = await heard(pool, file)
            assert file.tell() == len(wav(voice(2.0)))
    np.testing.assert_array_equal(passes[0].samples, voice(2.0))


async def test_errors_are_the_same_and_the_worker_lives_on() -> None:
    async with running() as pool:
        pids = set()
        for body, error_type in (
            (b"", "empty_body"),
            (b"nothing", "unsupported_media_type"),
            (wav(voice(0.02)), "audio_too_short"),
            (wav(voice(1.0), 1), "sample_rate_out_of_range"),
        ):
            job = await pool.open(body, DecodeRequest())
            pids.add(job.worker_pid)
            with pytest.raises(EmotionError) as caught:
                await anext(job)
            assert caught.value.error_type == error_type
        with pytest.raises(EmotionError) as caught:
            await heard(pool, wav(voice(1.0)), DecodeRequest(channels=7))
        assert caught.value.details == [{"parameter": "channels"}]
        await heard(pool, wav(voice(1.0)))
        assert len(pids) == 1


async def test_a_crash_costs_its_own_job_only(caplog: pytest.LogCaptureFixture) -> None:
    async with running(2) as pool:
        victim = await pool.open(LONG, DecodeRequest())
        other = await pool.open(LONG, DecodeRequest())
        await anext(victim)
        await anext(other)
        os.kill(victim.worker_pid, signal.SIGSEGV)
        with pytest.raises(EmotionError) as caught:
            [excerpt async for excerpt in victim]
        assert caught.value.error_type == "audio_decode_failed"
        assert len([excerpt async for excerpt in other]) == 5
        jobs = await asyncio.gather(*(heard(pool, wav(voice(1.0))) for _ in range(6)))
        assert all(len(passes) == 1 for passes, _ in jobs)
        assert not alive(victim.worker_pid)
        await until(lambda: "a decoder process has ended: SIGSEGV" in caplog.messages)


async def test_a_worker_that_died_while_idle_is_replaced_unseen() -> None:
    async with running() as pool:
        job = await pool.open(wav(voice(1.0)), DecodeRequest())
        assert len([excerpt async for excerpt in job]) == 1
        os.kill(job.worker_pid, signal.SIGKILL)
        await until(lambda: not alive(job.worker_pid))
        assert len((await heard(pool, wav(voice(1.0))))[0]) == 1


async def test_a_hung_decoder_is_given_up_and_replaced() -> None:
    async with running(1, decode_stall_seconds=0.3) as pool:
        job = await pool.open(LONG, DecodeRequest())
        await anext(job)
        os.kill(job.worker_pid, signal.SIGSTOP)
        with pytest.raises(EmotionError) as caught:
            [excerpt async for excerpt in job]
        assert caught.value.error_type == "audio_decode_failed"
        assert "0.3 s" in caught.value.message
        assert len((await heard(pool, wav(voice(1.0))))[0]) == 1
        await until(lambda: not alive(job.worker_pid))


async def test_neither_a_slow_reader_nor_a_queue_is_a_stall() -> None:
    async with running(1, decode_stall_seconds=0.3) as pool:
        job = await pool.open(LONG, DecodeRequest())
        await anext(job)
        waiting = asyncio.create_task(heard(pool, wav(voice(1.0))))
        await asyncio.sleep(0.7)
        assert len([excerpt async for excerpt in job]) == 5
        assert len((await waiting)[0]) == 1


async def test_a_long_way_to_the_start_is_not_a_stall() -> None:
    silence = np.zeros((RATE * 600, 2), np.int16)
    body = encode(silence, "flac", "flac")
    async with running(1, decode_stall_seconds=0.1) as pool:
        passes, _ = await heard(pool, body, DecodeRequest(start=595.0))
    assert passes[0].start == 595.0


@pytest.mark.parametrize("progress", [0, 1])
async def test_giving_up_frees_the_worker(progress: int) -> None:
    async with running() as pool:
        job = await pool.open(LONG, DecodeRequest())
        for _ in range(progress):
            await anext(job)
        await job.aclose()
        await job.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(job)
        following = await pool.open(wav(voice(1.0)), DecodeRequest())
        assert following.worker_pid == job.worker_pid
        assert len([excerpt async for excerpt in following]) == 1


async def test_giving_up_ends_the_decoding_itself() -> None:
    async with running() as pool:
        with tempfile.TemporaryFile() as file:
            file.write(wav(voice(1.0), data_size=0))
            file.truncate(14_000 * RATE * 2)
            job = await pool.open(file, DecodeRequest(start=13_990.0))
        await job.aclose()
        following = await pool.open(wav(voice(1.0)), DecodeRequest())
        assert following.worker_pid == job.worker_pid
        await following.aclose()


async def test_giving_up_a_hung_job_kills_its_worker() -> None:
    async with running() as pool:
        job = await pool.open(LONG, DecodeRequest())
        await anext(job)
        os.kill(job.worker_pid, signal.SIGSTOP)
        await job.aclose()
        assert len((await heard(pool, wav(voice(1.0))))[0]) == 1
        await until(lambda: not alive(job.worker_pid))


async def test_a_cancelled_reader_leaves_a_working_pool() -> None:
    async with running() as pool:
        for delay in (0.0, 0.001, 0.003, 0.01, 0.03):
            task = asyncio.create_task(heard(pool, LONG))
            await asyncio.sleep(delay)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        passes, _ = await heard(pool, LONG)
        np.testing.assert_array_equal(
            np.concatenate([p.samples for p in passes]), np.tile(voice(10.0), 18)
        )


async def test_eight_bad_bodies_at_once_are_refused_at_once() -> None:
    text = (
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n"
    )
    async with running(2) as pool:
        await pool.wait_ready()
        began = time.monotonic()
        results = await asyncio.gather(
            *(heard(pool, text) for _ in range(8)), return_exceptions=True
        )
        assert time.monotonic() - began < 1.0
    assert [error.error_type for error in results] == ["unsupported_media_type"] * 8


async def test_a_long_file_takes_no_more_memory_than_a_short_one() -> None:
    minute = np.stack([voice(60.0), voice(60.0, pitch=200)], 1)
    async with running() as pool:
        job = await pool.open(wav(minute), DecodeRequest())
        assert len([excerpt async for excerpt in job]) == 2
        short = peak_megabytes(job.worker_pid)
        with tempfile.TemporaryFile() as file:
            file.write(wav(minute, data_size=0))
            for _ in range(9):
                file.write(minute.tobytes())
            job = await pool.open(file, DecodeRequest())
            count = 0
            async for excerpt in job:
                count += 1
                assert excerpt.duration == 30.0
        assert count == 20
        assert peak_megabytes(job.worker_pid) < short + 15


async def test_workers_hold_nothing_but_their_socket_and_import_no_torch() -> None:
    with tempfile.TemporaryFile() as secret:
        os.set_inheritable(secret.fileno(), True)
        async with running() as pool:
            job = await pool.open(wav(voice(1.0)), DecodeRequest())
            assert len([excerpt async for excerpt in job]) == 1
            process = Path(f"/proc/{job.worker_pid}")
            links = [os.readlink(link) for link in (process / "fd").iterdir() if int(link.name) > 2]
            assert len(links) == 1
            assert links[0].startswith("socket:")
            maps = (process / "maps").read_text()
            assert "libavcodec" in maps
            assert "torch" not in maps
            assert "/ray/" not in maps
            limits = (process / "limits").read_text()
            assert limits.split("Max core file size")[1].split()[0] == "0"
            assert limits.split("Max file size")[1].split()[0] == "0"
            assert int(limits.split("Max data size")[1].split()[0]) <= 2 << 30


async def test_an_interrupt_from_the_terminal_is_the_parents_business() -> None:
    async with running() as pool:
        job = await pool.open(LONG, DecodeRequest())
        await anext(job)
        os.kill(job.worker_pid, signal.SIGINT)
        assert len([excerpt async for excerpt in job]) == 5


PARENT = """
import asyncio, json, sys
from engine.audio.pool import DecodeJob, DecodePool

async def main():
    pool = DecodePool(2)
    pool.start()
    await pool.wait_ready()
    print(json.dumps([worker.pid for worker in pool.workers]), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_workers_end_with_their_parent_even_if_it_is_killed() -> None:
    root = str(Path(__file__).parents[3])
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert parent.stdout is not None
    pids = json.loads(await parent.stdout.readline())
    assert all(map(alive, pids))
    parent.kill()
    await parent.wait()
    await until(lambda: not any(map(alive, pids)))


async def test_close_ends_the_workers_and_everybody_who_waits() -> None:
    async with running(2) as pool:
        await pool.wait_ready()
        pids = [worker.pid for worker in pool.workers]
        assert len(pids) == 2
        jobs = [await pool.open(LONG, DecodeRequest()) for _ in pids]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        waiting = [asyncio.create_task(heard(pool, wav(voice(1.0)))) for _ in range(3)]
        reading = asyncio.create_task(heard_rest(jobs[0]))
        await asyncio.sleep(0.05)
    results = await asyncio.gather(*waiting, reading, return_exceptions=True)
    assert [error.error_type for error in results[:3]] == ["not_ready"] * 3
    assert isinstance(results[3], EmotionError)
    await until(lambda: not any(map(alive, pids)))
    with pytest.raises(EmotionError):
        await pool.open(wav(voice(1.0)), DecodeRequest())


async def test_others_do_not_wait_for_long_files_that_wait_for_their_readers() -> None:
    async with running(workers=1) as pool:
        long_jobs = []
        for _ in range(4):
            job = await asyncio.wait_for(pool.open(LONG, DecodeRequest()), 10)
            await anext(job)
            long_jobs.append(job)
        passes, _ = await asyncio.wait_for(heard(pool, wav(voice(1.0))), 10)
        np.testing.assert_array_equal(passes[0].samples, voice(1.0))
        for job in long_jobs:
            assert len(await heard_rest(job)) == 5
        assert len(pool.workers) == 1


async def test_a_pool_stays_as_small_as_its_decoding() -> None:
    async with running(workers=1) as pool:
        clips = [wav(voice(20.0))] * 40
        await asyncio.gather(*(heard(pool, clip) for clip in clips))
        assert len(pool.workers) == 1


async def test_all_workers_may_die_while_they_are_idle() -> None:
    async with running(workers=4) as pool:
        await pool.wait_ready()
        for worker in list(pool.workers):
            os.kill(worker.pid, signal.SIGKILL)
        await until(lambda: not any(alive(worker.pid) for worker in pool.workers))
        passes, _ = await heard(pool, wav(voice(1.0)))
    np.testing.assert_array_equal(passes[0].samples, voice(1.0))


async def test_no_audio_is_told_so_while_all_workers_are_busy() -> None:
    async with running(workers=1) as pool:
        job = await pool.open(LONG, DecodeRequest())
        with pytest.raises(EmotionError) as caught:
            await asyncio.wait_for(pool.open(b"nothing", DecodeRequest()), 0.5)
        assert caught.value.error_type == "unsupported_media_type"
        await job.aclose()


async def test_slow_decoding_gives_way_and_is_its_workers_last() -> None:
    hours = encode(np.zeros((RATE * 7200, 2), np.int16), "flac", "flac")
    async with running(workers=1) as pool:
        job = await pool.open(hours, DecodeRequest(start=7000.0, end=7010.0))
        slow = asyncio.create_task(heard_rest(job))
        await asyncio.sleep(0)
        passes, _ = await asyncio.wait_for(heard(pool, wav(voice(1.0))), 10)
        assert len(passes) == 1
        assert not slow.done()
        assert os.getpriority(os.PRIO_PROCESS, job.worker_pid) == 15
        slow.cancel()
        await job.aclose()
        await until(lambda: not alive(job.worker_pid))
        assert len(pool.workers) == 1
