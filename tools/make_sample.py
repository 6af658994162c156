"""Make `serve_app/assets/sample.wav` again: one sentence by espeak-ng, 16 kHz, mono, 16 bit.

Needs the `espeak-ng` command; run as `make sample`.
"""

import io
import subprocess
import wave
from pathlib import Path

import numpy as np
import torch
import torchaudio

TEXT = "What a wonderful surprise! I am so happy to see you again."
TARGET = Path(__file__).parents[1] / "serve_app" / "assets" / "sample.wav"
SAMPLE_RATE = 16_000


def main() -> None:
    """Speak, resample, write."""
    command = ["espeak-ng", "-v", "en-us", "-s", "165", "-p", "62", "--stdout", TEXT]
    spoken = subprocess.run(command, check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(spoken)) as source:
        rate = source.getframerate()
        # a WAV that is written to a pipe promises more frames than it has
        samples = np.frombuffer(source.readframes(source.getnframes()), "<i2")
    waveform = torch.from_numpy(samples.astype(np.float32))
    resampled = torchaudio.functional.resample(waveform, rate, SAMPLE_RATE)
    with wave.open(str(TARGET), "wb") as target:
        target.setnchannels(1)
        target.setsampwidth(2)
        target.setframerate(SAMPLE_RATE)
        target.writeframes(resampled.round().clamp(-32768, 32767).to(torch.int16).numpy().tobytes())
    print(f"{TARGET.name}: {len(resampled) / SAMPLE_RATE:.2f} s")


if __name__ == "__main__":
    main()
