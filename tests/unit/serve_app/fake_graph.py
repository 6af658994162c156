"""A graph without Ray or a model, and sounds to send through it."""

import asyncio
import io
import wave

import numpy as np

from deployments.graph import SpeechRegions
from deployments.wire import AudioPass, ModelInfo, OtherModel, Preprocessed, Scored
from engine.errors import EmotionError

LABELS = ("生气/angry", "开心/happy", "中立/neutral", "<unk>")


class FakeGraph:
    """Logits that are a plain function of the samples, one frame per 320 of them."""

    def __init__(self) -> None:
        self.passes: list[AudioPass] = []
        self.failure: Exception | None = None
        self.ready = True
        self.model = "fake"
        self.denoised = 0
        self.seconds = 0.0
        self.at_work = 0

    async def prepare(self, audio: AudioPass, denoise: bool) -> Preprocessed:
        self.denoised += denoise
        wave = audio.as_float()[:: max(1, audio.sample_rate // 16_000)]
        return Preprocessed(audio.with_samples(wave, 16_000), 0.1)

    async def speech(self, audio: AudioPass) -> SpeechRegions:
        """Loud stretches, found on a 10 ms grid."""
        step = audio.sample_rate // 100
        wave = np.abs(audio.as_float())
        loud = [wave[i : i + step].max() > 0.05 for i in range(0, wave.size, step)]
        edges = np.flatnonzero(np.diff([0, *loud, 0])) / 100
        end = wave.size / audio.sample_rate
        return tuple(
            (float(a), min(float(b), end)) for a, b in zip(edges[::2], edges[1::2], strict=True)
        )

    async def score(self, audio: AudioPass) -> Scored | OtherModel:
        model = self.model
        if audio.model not in (None, (model, "1")):
            return OtherModel()
        self.passes.append(audio)
        self.at_work += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.at_work -= 1
        if self.failure is not None:
            raise self.failure
        samples = audio.as_float()
        frames = max(1, (samples.size - 400) // 320 + 1)
        rows = np.stack([samples[t * 320 : t * 320 + 400 : 100] for t in range(frames)])
        features = np.ascontiguousarray(rows[:, :3])
        return Scored(
            frame_logits=rows * np.float32(10),
            embedding=features.mean(axis=0),
            frame_embeddings=features if audio.frame_embeddings else None,
            labels=LABELS,
            model=model,
            revision="1",
            queue_ms=0.1,
            model_ms=0.2,
        )

    async def info(self) -> ModelInfo:
        if not self.ready:
            raise EmotionError("not_ready", "the model is still loading")
        return ModelInfo(
            model=self.model,
            revision="1",
            dtype="float32",
            device="cpu",
            compiled=False,
            labels=LABELS,
            embedding_size=3,
            sample_rate=16_000,
            frame_seconds=0.02,
            receptive_field=400,
            max_batch_frames=1500,
            versions={},
        )


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
