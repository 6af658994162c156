"""What a decoder of any kind offers, and what it refuses."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from engine.audio.types import DecodeLimits, Samples
from engine.errors import EmotionError


@dataclass(slots=True)
class Damage:
    """What was wrong with a file that decoded nevertheless.

    Attributes:
        truncated: the container promises more than it holds.
        corrupt: packets that did not decode.
    """

    truncated: bool = False
    corrupt: int = 0


class Source(Protocol):
    """Sound that is being decoded.

    Attributes:
        format: plain name of the container.
        sample_rate: Hz.
        channels: channels.
        damage: complete once `blocks` has ended.
        promised_seconds: what the container says its length is, true or not; infinite where a
            container of silence can be small and does not say.
    """

    format: str
    sample_rate: int
    channels: int
    damage: Damage
    promised_seconds: float

    def sounds_at(self, seconds: float) -> bool:
        """Whether there really is something so far in, found without decoding what is before."""

    def blocks(self) -> Iterator[Samples]:
        """The samples in order, as arrays `[channels, n]`, int16 or float32. Once only."""


def check_sample_rate(sample_rate: int, limits: DecodeLimits) -> None:
    """Refuse rates that no recording has: they would make the resampler run for ever."""
    if not limits.min_sample_rate <= sample_rate <= limits.max_sample_rate:
        raise EmotionError(
            "sample_rate_out_of_range",
            f"The sample rate is {sample_rate} Hz, outside of {limits.min_sample_rate} "
            f"to {limits.max_sample_rate} Hz.",
        )


def check_channels(channels: int, limits: DecodeLimits) -> None:
    """Refuse more channels than a file may have, and none."""
    if not 1 <= channels <= limits.max_channels:
        raise EmotionError(
            "audio_decode_failed",
            f"The audio has {channels} channels, outside of 1 to {limits.max_channels}.",
        )
