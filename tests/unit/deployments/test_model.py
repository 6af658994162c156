"""One clip that the engine fails on does not take its batch along."""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from deployments.gate import Ticket, WorkGate
from deployments.metrics import ModelMetrics
from deployments.model import Model, ModelSettings, _Job, is_device_lost
from deployments.wire import AudioPass, OtherModel, Scored
from engine.emotions import Emotions
from engine.errors import EmotionError


class FakeEngine:
    """Fails on any batch that holds a clip of the poisonous length."""

    name, revision = "fake", "1"
    padding_ratio = 0.0
    frame_seconds = 0.02
    device = torch.device("cpu")

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def take_retries(self) -> int:
        return 0

    def infer_each(self, waves: list[np.ndarray], frame_embeddings: bool) -> list[Any]:
        if any(wave.size == 666 for wave in waves):
            raise self.failure
        logits = np.zeros((3, 2), np.float32)
        return [Emotions(("a", "b"), logits, (3,), np.zeros(4, np.float32)) for _ in waves]


def model_with(failure: Exception) -> Any:
    model = Model.func_or_class.__new__(Model.func_or_class)
    model._engine = FakeEngine(failure)
    model._metrics = ModelMetrics()
    model._gate = WorkGate(lambda: 1)
    model._max_batch_frames = 1_500
    model._device_error = None
    return model


def jobs(*sizes: int) -> list[_Job]:
    return [_Job(np.zeros(size, np.float32), False, Ticket(10), 0.0) for size in sizes]


def test_the_other_clips_of_a_failed_batch_get_their_answers() -> None:
    model = model_with(ValueError("odd clip"))
    results = model._compute(jobs(500, 666, 700))
    assert [type(result) for result in results] == [Scored, EmotionError, Scored]
    assert results[1].error_type == "internal"
    assert "odd clip" not in results[1].message
    model.check_health()


async def test_a_pass_for_another_model_is_not_scored() -> None:
    model = model_with(ValueError("scored"))
    wave = np.zeros(666, np.float32)
    for name in (("fake", "2"), ("other", "1")):
        audio = AudioPass(wave, 16_000, model=name)
        assert await asyncio.wait_for(model.score(audio), 1) == OtherModel()


def test_lost_device_makes_the_replica_unhealthy() -> None:
    lost = torch.AcceleratorError.__new__(torch.AcceleratorError)
    model = model_with(lost)
    results = model._compute(jobs(500, 666))
    assert [type(result) for result in results] == [EmotionError, EmotionError]
    with pytest.raises(RuntimeError):
        model.check_health()


def test_only_sticky_errors_are_a_lost_device() -> None:
    assert not is_device_lost(torch.OutOfMemoryError("full"))
    assert not is_device_lost(RuntimeError("shape"))


def test_without_a_compiler_it_serves_uncompiled_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("CC", "CXX", "PATH"):
        monkeypatch.setenv(name, "/nowhere")
    settings = ModelSettings("emotion2vec_mini", "cpu", "float32", 30.0, 1, 0)
    with caplog.at_level("INFO", "ray.serve.model"):
        model = Model.func_or_class(settings)
    said = [line for line in caplog.messages if "compiled" in line]
    assert said == ["encoder: torch.float32 on cpu, not compiled"]
    assert model.info().compiled is False
