"""Long and hostile sounds, made in memory, and what a running server's processes hold."""

import io
import os
import wave

import av
import numpy as np
import psutil

RATE = 16_000


def stereo_voices(seconds: float, rate: int = RATE) -> np.ndarray:
    """Two voices, one on each channel, whose pitch and loudness never repeat; int16 [n, 2]."""
    time = np.arange(round(seconds * rate)) / rate
    rng = np.random.default_rng(5)
    channels = []
    for pitch, pace in ((120, 0.031), (210, 0.047)):
        glide = pitch * time + 9 * np.sin(2 * np.pi * pace * time) / pace / 6
        sound = np.sin(2 * np.pi * glide) + 0.5 * np.sin(4 * np.pi * glide)
        sound *= 0.5 + 0.4 * np.sin(2 * np.pi * (2.1 + 0.01 * time) * time)
        channels.append(0.2 * sound + 0.01 * rng.standard_normal(time.size))
    return (np.stack(channels, 1) * 32767).clip(-32768, 32767).astype(np.int16)


def wav_of(samples: np.ndarray, rate: int = RATE) -> bytes:
    """A 16-bit WAV of `[n]` or `[n, channels]` int16."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


def encoded(
    samples: np.ndarray,
    container: str,
    codec: str,
    rate: int = RATE,
    options: dict[str, str] | None = None,
) -> bytes:
    """`[n]` or `[n, 2]` int16 through an encoder, second by second."""
    planes = np.atleast_2d(samples.T)
    layout = ("mono", "stereo")[len(planes) - 1]
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=options or {}) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        form = "s16p" if codec == "libmp3lame" else "s16"
        for at in range(0, planes.shape[1], rate):
            part = planes[:, at : at + rate]
            rows = part if form == "s16p" else part.T.reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(rows), form, layout)
            frame.sample_rate, frame.pts = rate, at
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


def flac_bomb(hours: float, rate: int = 8_000) -> bytes:
    """Hours of silence in about 600 kB an hour."""
    return encoded(np.zeros(round(hours * 3600 * rate), np.int16), "flac", "flac", rate)


def decoders() -> list[psutil.Process]:
    """The decoder processes of the cluster that this process started."""
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if "engine.audio.worker" in _command(process)
    ]


def held_bodies(process: psutil.Process) -> list[int]:
    """Bytes of each upload that a process holds: a file without a name, on disk or in memory."""
    sizes = []
    folder = f"/proc/{process.pid}/fd"
    try:
        for name in os.listdir(folder):
            link = os.readlink(f"{folder}/{name}")
            if link.startswith("/memfd:body") or (link.startswith("/tmp") and "deleted" in link):
                sizes.append(os.stat(f"{folder}/{name}").st_size)
    except FileNotFoundError:
        return sizes
    return sizes


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
