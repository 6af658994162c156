"""FunASR's own way to the same answer, which the engine is measured against."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.clips import Samples

Generate = Callable[[Samples], dict[str, Any]]


@contextlib.contextmanager
def reference_process(directory: Path, threads: int) -> Iterator[Generate]:
    """`load_reference` in a process of its own: what either does to its process is its own."""
    with ProcessPoolExecutor(1, get_context("spawn"), _start, (directory, threads)) as pool:
        yield lambda wave: pool.submit(_generate, wave).result()


_generate_here: Generate


def _start(directory: Path, threads: int) -> None:
    global _generate_here
    _generate_here = load_reference(directory, threads)


def _generate(wave: Samples) -> dict[str, Any]:
    return _generate_here(wave)


def load_reference(directory: Path, threads: int) -> Generate:
    """`AutoModel.generate` on a checkpoint, float32 on the CPU, with `threads` threads.

    FunASR prints, warns and sets up logging as it goes: all of it is kept to itself.
    """
    with quiet():
        from funasr import AutoModel

        model = AutoModel(
            model=str(directory.resolve()),
            device="cpu",
            ncpu=threads,
            fp16=False,
            bf16=False,
            disable_update=True,
            disable_pbar=True,
        )

    def generate(wave: Samples) -> dict[str, Any]:
        with quiet():
            results: list[dict[str, Any]] = model.generate(
                wave, granularity="utterance", extract_embedding=False
            )
        return results[0]

    return generate


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No prints, no warnings, no log lines from inside."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
