"""Cut decoded sound into mono passes while it is being decoded.

Nothing longer than a pass and its tail (under 5 s) is ever held. Each pass is what the same
excerpt, sent alone with `start` and `end`, would be.
"""

import math
from collections.abc import Callable, Iterator
from typing import BinaryIO

from engine.audio.body import Body
from engine.audio.buffer import PassBuffer
from engine.audio.mix import mix_channels
from engine.audio.pcm import PcmReader
from engine.audio.report import StreamQuality, damage_warnings
from engine.audio.resample import is_odd_rate, length_at_16k, to_16k
from engine.audio.samples import to_float
from engine.audio.source import Source
from engine.audio.types import DecodeLimits, DecodeRequest, Pass, Samples, SourceReport
from engine.errors import EmotionError
from engine.passes import MODEL_RATE, TAIL_SECONDS


def read_passes(
    file: BinaryIO | Body,
    request: DecodeRequest | None = None,
    limits: DecodeLimits | None = None,
    on_block: Callable[[], None] | None = None,
) -> "PassReader":
    """Decode a seekable binary file in this process, pass by pass.

    `on_block` is called after each decoded block, whether it is heard or not.

    Raises:
        EmotionError: here or while iterating, for whatever is wrong with the file.
    """
    body = file if isinstance(file, Body) else Body.of_file(file)
    return PassReader(body, request or DecodeRequest(), limits or DecodeLimits(), on_block)


class PassReader:
    """An iterator of `Pass`; `reports` (one per stream) is there once it has ended."""

    def __init__(
        self,
        body: Body,
        request: DecodeRequest,
        limits: DecodeLimits,
        on_block: Callable[[], None] | None = None,
    ) -> None:
        self._request, self._limits, self._on_block = request, limits, on_block
        _check_span(request)
        self._source = _open(body, request, limits)
        self._streams = self._chosen_streams()
        self._rate = self._source.sample_rate
        self._first = round((request.start or 0.0) * self._rate)
        self._end = None if request.end is None else round(request.end * self._rate)
        self._qualities = [StreamQuality(self._rate) for _ in self._streams]
        self._heard = self._decoded = self._emitted = self._index = 0
        self._iterator = self._read()
        self.reports: tuple[SourceReport, ...] = ()

    def __iter__(self) -> Iterator[Pass]:
        return self

    def __next__(self) -> Pass:
        return next(self._iterator)

    @property
    def report(self) -> SourceReport:
        """The report of the first (or only) stream."""
        return self.reports[0]

    def _chosen_streams(self) -> list[int | None]:
        """The channel of each stream; None for a mix of all."""
        chosen, channels = self._request.channels, self._source.channels
        if chosen == "mix":
            return [None]
        if chosen == "split":
            return list(range(channels))
        if not 0 <= chosen < channels:
            raise EmotionError(
                "invalid_request",
                f"channels is {chosen}, but the audio has {channels} channel(s), "
                f"0 to {channels - 1}.",
                details=[{"parameter": "channels"}],
            )
        return [chosen]

    def _refuse_what_is_said_to_be_too_long(self) -> None:
        """Hours of sound are refused before the model hears them, where the header tells of them
        and a look behind the limit finds sound there.
        """
        source, limit = self._source, self._limits.max_audio_seconds
        if self._request.end is None and source.promised_seconds > limit:
            if not source.sounds_at(limit):
                return
            said = source.promised_seconds
            length = f"it lasts {said:.2f} s" if said < math.inf else "it goes on behind that"
            raise EmotionError(
                "audio_too_long", f"The audio is longer than the limit of {limit:g} s: {length}."
            )

    def _read(self) -> Iterator[Pass]:
        self._refuse_what_is_said_to_be_too_long()
        buffer: PassBuffer | None = None
        for block in self._heard_blocks():
            buffer = buffer or self._new_buffer(block)
            done = 0
            while done < block.shape[1]:
                done += buffer.fill(block[:, done:])
                if buffer.is_full:
                    yield from self._emit(buffer.complete())
                    buffer.drop_pass()
        self._check_length()
        if buffer is not None and buffer.held().shape[1]:
            yield from self._emit(buffer.held())
        self._finish()

    def _heard_blocks(self) -> Iterator[Samples]:
        """The part of each block between `start` and `end`, of the channels that matter."""
        only = self._request.channels if isinstance(self._request.channels, int) else None
        for block in self._source.blocks():
            begin = self._decoded
            self._decoded += block.shape[1]
            self._check_decoded()
            if self._on_block:
                self._on_block()
            end = None if self._end is None else max(0, self._end - begin)
            heard = block[:, max(0, self._first - begin) : end]
            self._heard += heard.shape[1]
            if heard.shape[1]:
                yield heard if only is None else heard[only : only + 1]
            if end is not None and end <= block.shape[1]:
                return

    def _check_decoded(self) -> None:
        seconds, limit = self._decoded / self._rate, self._limits.max_audio_seconds
        if seconds > limit:
            raise EmotionError(
                "audio_too_long",
                f"The audio is longer than the limit of {limit:g} s: "
                f"{seconds:.2f} s were decoded before it was refused.",
            )
        samples, most = self._decoded * self._source.channels, self._limits.max_decoded_samples
        if samples > most:
            raise EmotionError(
                "audio_too_long",
                f"The audio has more samples than the limit of {most}: {samples} in "
                f"{self._source.channels} channel(s) were decoded before it was refused.",
            )

    def _check_length(self) -> None:
        rate, shortest = self._rate, self._request.min_samples_16k
        if not self._heard and self._first:
            raise EmotionError(
                "invalid_request",
                f"start is {self._request.start:g} s, but the audio lasts only "
                f"{self._decoded / rate:.3f} s.",
                details=[{"parameter": "start"}],
            )
        if not self._heard:
            raise EmotionError("audio_empty", "The audio holds 0 samples.")
        if (samples := length_at_16k(self._heard, rate)) < shortest:
            raise EmotionError(
                "audio_too_short",
                f"The audio has {samples} samples at 16 kHz; the model needs {shortest}.",
            )

    def _new_buffer(self, block: Samples) -> PassBuffer:
        pass_samples = max(1, round(self._request.pass_seconds * self._rate))
        # With so much behind it, a pass need not take in the rest of the sound.
        tail = min(TAIL_SECONDS * self._rate, pass_samples + 1)
        return PassBuffer(len(block), pass_samples, tail, block.dtype)

    def _emit(self, raw: Samples) -> Iterator[Pass]:
        """The passes of one excerpt `[channels, n]`, one for each stream."""
        start = (self._first + self._emitted) / self._rate
        self._emitted += raw.shape[1]
        for row, (channel, quality) in enumerate(zip(self._streams, self._qualities, strict=True)):
            heard = raw if channel is None else raw[row : row + 1]
            samples, cancelled = mix_channels(heard)
            quality.add(heard, to_float(samples), cancelled)
            rate = self._rate
            if is_odd_rate(rate):
                samples, rate = to_16k(to_float(samples), rate), MODEL_RATE
            yield Pass(self._index, channel, start, samples, rate)
        self._index += 1

    def _finish(self) -> None:
        source, damage = self._source, self._source.damage
        if self._request.strict and (damage.truncated or damage.corrupt):
            message = damage_warnings(damage)[0][1]
            raise EmotionError("audio_decode_failed", f"strict is set: {message}")
        self.reports = tuple(
            SourceReport(
                format=source.format,
                sample_rate=source.sample_rate,
                channels=source.channels,
                duration=self._heard / self._rate,
                level_dbfs=quality.level_dbfs,
                clipping_ratio=quality.clipping_ratio,
                warnings=(*damage_warnings(damage), *quality.warnings()),
                channel=channel,
            )
            for channel, quality in zip(self._streams, self._qualities, strict=True)
        )


def _check_span(request: DecodeRequest) -> None:
    start = request.start or 0.0
    if start < 0 or (request.end is not None and request.end <= start):
        raise EmotionError(
            "invalid_request",
            f"start is {start:g} s and end is {request.end} s: 0 <= start < end must hold.",
            details=[{"parameter": "start"}, {"parameter": "end"}],
        )


def _open(body: Body, request: DecodeRequest, limits: DecodeLimits) -> Source:
    if body.size == 0:
        raise EmotionError("empty_body", "The body is empty: 0 bytes.")
    if request.pcm is not None:
        return PcmReader(body, request.pcm, limits)
    # Imported here: headerless PCM and the types need no decoder.
    from engine.audio.decode import Decoder

    return Decoder(body, limits)
