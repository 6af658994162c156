"""Audio files made in memory: voiced sound in every container and every state of disrepair."""

import io
import struct

import av
import numpy as np

RATE = 16_000


def voice(
    seconds: float = 3.0, rate: int = RATE, pitch: float = 140.0, seed: int = 0
) -> np.ndarray:
    """A voiced, slowly swelling sound with breath noise, int16, up to half of full scale."""
    time = np.arange(round(seconds * rate)) / rate
    turns = pitch * time + 0.3 * np.sin(2 * np.pi * 3 * time)
    sound = np.pi * (0.5 - np.mod(turns, 1.0))
    sound *= 0.6 + 0.4 * np.sin(2 * np.pi * 1.7 * time)
    sound += 0.1 * np.random.default_rng(seed).normal(size=len(time))
    return (sound / 4 * 0.5 * 32767).clip(-32768, 32767).astype(np.int16)


def wav(
    samples: np.ndarray, rate: int = RATE, *, data_size: int | None = None, form: bytes = b"RIFF"
) -> bytes:
    """A WAV of `[n]` or `[n, channels]`: int16, float32, float64 or uint8."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    data, width = samples.tobytes(), samples.dtype.itemsize
    tag = 3 if samples.dtype.kind == "f" else 1
    size = len(data) if data_size is None else data_size
    head = struct.pack(
        *("<HHIIHH", tag, channels, rate, rate * channels * width, channels * width, 8 * width)
    )
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size)
    return form + struct.pack("<I", (size + 36) & 0xFFFFFFFF) + body + data


def encode(
    samples: np.ndarray,
    container: str,
    codec: str,
    rate: int = RATE,
    *,
    options: dict[str, str] | None = None,
    bit_rate: int | None = None,
) -> bytes:
    """`[n]` or `[n, channels]` int16 through an encoder into a container."""
    file = io.BytesIO()
    planes = np.atleast_2d(samples.T)
    layout = {1: "mono", 2: "stereo"}.get(len(planes)) or f"{len(planes)}.0"
    with av.open(file, "w", format=container, options=options or {}) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        if bit_rate:
            stream.bit_rate = bit_rate
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(planes), "s16p", layout)
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    """Likeness of two sounds at their best shift of up to 0.1 s; 1 for the same."""
    length = min(len(left), len(right))
    left, right = left[:length].astype(float), right[:length].astype(float)
    cross = np.fft.irfft(np.fft.rfft(left, 2 * length) * np.conj(np.fft.rfft(right, 2 * length)))
    reach = 4_800
    peak = max(cross[:reach].max(), cross[-reach:].max())
    return float(peak / np.sqrt((left**2).sum() * (right**2).sum()))
