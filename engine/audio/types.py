"""What a decoder is asked, what it may spend, and what it gives back."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16] | NDArray[np.float32]
"""Sound as int16 (full scale 32768) or float32 (full scale 1.0)."""

Channels = Literal["mix", "split"] | int
"""`mix` to mono, `split` into one stream per channel, or the number of one channel."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """What one file may cost; beyond it the file is refused.

    Attributes:
        max_audio_seconds: of decoded sound, counted, never read from a header.
        max_decoded_samples: samples of all channels together, counted while decoding.
        min_sample_rate, max_sample_rate: Hz.
        max_channels: channels of the source.
        decode_stall_seconds: longest wait for the decoder's next samples.
    """

    max_audio_seconds: float = 14_400.0
    max_decoded_samples: int = 5 * 10**9
    min_sample_rate: int = 4_000
    max_sample_rate: int = 384_000
    max_channels: int = 32
    decode_stall_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class PcmFormat:
    """Headerless PCM: `encoding` is `pcm_s16le` or `pcm_f32le`; `sample_rate` in Hz."""

    encoding: str
    sample_rate: int
    num_channels: int


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """What to hear of a file.

    Attributes:
        pass_seconds: length of a pass; a tail under 5 s joins its neighbour.
        channels: see `Channels`.
        start, end: seconds; only this part is heard, cut at the nearest source sample.
        strict: a damaged or truncated file is an error instead of a warning.
        pcm: the body is headerless PCM of this kind, not a container.
        min_samples_16k: fewest samples at 16 kHz that the model can hear.
    """

    pass_seconds: float = 30.0
    channels: Channels = "mix"
    start: float | None = None
    end: float | None = None
    strict: bool = False
    pcm: PcmFormat | None = None
    min_samples_16k: int = 400


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One mono excerpt.

    Attributes:
        index: number of the pass in its stream, from 0.
        channel: number of the source channel; None for a mix.
        start: seconds from the beginning of the file.
        samples: 1-D; int16 where the source is int16 and was not mixed, else float32.
        sample_rate: Hz; the source's, or 16000 where no polyphase kernel is practical.
    """

    index: int
    channel: int | None
    start: float
    samples: Samples
    sample_rate: int

    @property
    def duration(self) -> float:
        """Seconds."""
        return len(self.samples) / self.sample_rate


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What the file was and how good it sounds.

    Attributes:
        format: plain name of the container, for example `wav` or `webm`.
        sample_rate: Hz, of the source.
        channels: channels of the source.
        duration: seconds that were heard (between `start` and `end`).
        level_dbfs: RMS of the stream, 0 dB = full scale; -120 at the least.
        clipping_ratio: share of the heard channels' samples at 0.999 of full scale or beyond.
        warnings: pairs of a code of the interface and a sentence.
        channel: number of the source channel; None for a mix.
    """

    format: str
    sample_rate: int
    channels: int
    duration: float
    level_dbfs: float
    clipping_ratio: float
    warnings: tuple[tuple[str, str], ...] = ()
    channel: int | None = None

    def source(self) -> dict[str, Any]:
        """The `source` object of an answer."""
        return {
            "format": self.format,
            "sample_rate": self.sample_rate,
            "channels": self.channels,
            "level_dbfs": self.level_dbfs,
            "clipping_ratio": self.clipping_ratio,
        }
