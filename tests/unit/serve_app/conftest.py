"""The whole HTTP path over a fake graph: no Ray, no model, real decoder processes."""

import io
import wave
from collections.abc import AsyncIterator, Callable

import httpx2
import numpy as np
import pytest

from deployments.graph import PassResult
from deployments.wire import AudioPass, ModelInfo, Scored
from engine.errors import EmotionError
from serve_app.http.app import build_http
from serve_app.service import EmotionService
from serve_app.settings import Settings

LABELS = ("生气/angry", "开心/happy", "中立/neutral", "<unk>")


class FakeGraph:
    """Logits that are a plain function of the samples, one frame per 320 of them."""

    def __init__(self) -> None:
        self.passes: list[AudioPass] = []
        self.failure: Exception | None = None
        self.ready = True

    async def score(self, audio: AudioPass, timeout_seconds: float) -> PassResult:
        self.passes.append(audio)
        if self.failure is not None:
            raise self.failure
        samples = audio.as_float()
        frames = max(1, (samples.size - 400) // 320 + 1)
        rows = np.resize(samples, frames * 4).reshape(frames, 4)
        features = np.ascontiguousarray(rows[:, :3])
        scored = Scored(
            frame_logits=rows * np.float32(10),
            embedding=features.mean(axis=0),
            frame_embeddings=features if audio.frame_embeddings else None,
            labels=LABELS,
            queue_ms=0.1,
            model_ms=0.2,
        )
        return PassResult(scored, 0.1)

    async def info(self) -> ModelInfo:
        if not self.ready:
            raise EmotionError("not_ready", "the model is still loading")
        return ModelInfo(
            model="fake",
            revision="1",
            dtype="float32",
            device="cpu",
            compiled=False,
            labels=LABELS,
            embedding_size=3,
            frame_seconds=0.02,
            receptive_field=400,
            max_batch_frames=1500,
            versions={},
        )


@pytest.fixture
def graph() -> FakeGraph:
    return FakeGraph()


@pytest.fixture
async def service_of() -> AsyncIterator[Callable[..., EmotionService]]:
    """Makes started services with the settings a test needs, and stops them."""
    services: list[EmotionService] = []

    def make(graph: FakeGraph, **settings: object) -> EmotionService:
        service = EmotionService(Settings(decode_workers=1, **settings), graph)
        service.start()
        services.append(service)
        return service

    yield make
    for service in services:
        await service.close()


@pytest.fixture
async def http(
    graph: FakeGraph, service_of: Callable[..., EmotionService]
) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(build_http(service_of(graph)), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


def wav_bytes(samples: np.ndarray, sample_rate: int = 16_000) -> bytes:
    """A 16-bit mono WAV of float samples in [-1, 1]."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


def speech_like(seconds: float, seed: int = 0, sample_rate: int = 16_000) -> np.ndarray:
    """Harmonics of a gliding voice with syllables, quiet enough not to clip."""
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * sample_rate)) / sample_rate
    pitch = 120 + 30 * rng.random() + 20 * np.sin(2 * np.pi * 0.7 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / sample_rate
    voice = sum(np.sin(k * phase + rng.random()) / k for k in range(1, 20))
    syllables = 0.55 + 0.45 * np.sin(2 * np.pi * 3 * t + seed)
    return 0.15 * voice * syllables + 0.002 * rng.standard_normal(t.size)
