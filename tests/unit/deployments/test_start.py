"""A replica that starts on a CPU leaves the cores to those that serve, and then serves itself."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from deployments import model as model_module
from deployments import preprocess as preprocess_module
from deployments.model import Model, ModelSettings
from deployments.preprocess import Preprocess, PreprocessSettings
from engine.threads import START_NICENESS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority there")


def urgency() -> int:
    """Niceness of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def all_urgencies(workers: ThreadPoolExecutor) -> set[int]:
    meeting = threading.Barrier(workers._max_workers)

    def tell() -> int:
        meeting.wait(5)
        return urgency()

    return {told.result() for told in [workers.submit(tell) for _ in range(meeting.parties)]}


def listen(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """Niceness of the threads that call a function of the module."""
    calls: list[int] = []
    called = getattr(module, name)

    def noted(*arguments: Any) -> Any:
        calls.append(urgency())
        return called(*arguments)

    monkeypatch.setattr(module, name, noted)
    return calls


def test_model(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = listen(monkeypatch, model_module, "_load")
    warm_ups = listen(monkeypatch, model_module, "_warm_up")
    settings = ModelSettings(
        model="emotion2vec_mini",
        device="cpu",
        dtype="float32",
        pass_seconds=30.0,
        cpu_threads=2,
        max_batch_frames=100,
    )
    before = urgency()
    model: Any = Model.func_or_class(settings)  # type: ignore[operator]
    assert loads == warm_ups == [before + START_NICENESS]
    assert urgency() == before
    assert all_urgencies(model._wide) == all_urgencies(model._narrow) == {before}


def test_preprocess(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = listen(monkeypatch, preprocess_module, "_start")
    before = urgency()
    preprocess: Any = Preprocess.func_or_class(PreprocessSettings("cpu"))  # type: ignore[operator]
    assert starts == [before + START_NICENESS]
    assert all_urgencies(preprocess._worker) == all_urgencies(preprocess._listener) == {before}
