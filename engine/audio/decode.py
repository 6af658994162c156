"""Decode any audio file to blocks of samples with FFmpeg (through PyAV), trusting nothing in it.

Decoding is the attack surface of a server. The container is known from our own table before
FFmpeg sees it, FFmpeg may open that one only (no probing, no protocols, no other files, no
video or subtitle codecs), decodes in one thread, and every sample is counted as it appears.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import av
from av.audio.frame import AudioFrame
from av.error import FFmpegError

from engine.audio.body import Body
from engine.audio.frames import RateBridge, channel_count, frame_samples
from engine.audio.integrity import (
    is_cut,
    next_wav,
    packet_is_cut,
    promised_packets,
    promised_samples,
)
from engine.audio.samples import match_channels
from engine.audio.sniff import DEMUXERS, Kind, known_kind
from engine.audio.source import Damage, check_channels, check_sample_rate
from engine.audio.types import DecodeLimits, Samples
from engine.errors import EmotionError

CODECS: Final = (
    *("aac", "aac_latm", "ac3", "eac3", "alac", "amrnb", "amrwb", "ape", "flac", "gsm", "gsm_ms"),
    *("libopencore_amrnb", "libopencore_amrwb", "libopus", "mp1", "mp1float", "mp2", "mp2float"),
    *("mp3", "mp3float", "nellymoser", "opus", "speex", "tta", "vorbis", "wavpack", "wmalossless"),
    *("wmapro", "wmav1", "wmav2", "wmavoice", "g722", "g723_1", "g726", "g726le", "g729", "ilbc"),
    *("adpcm_ima_qt", "adpcm_ima_wav", "adpcm_ms", "adpcm_swf", "adpcm_yamaha", "truespeech"),
    *("pcm_alaw", "pcm_mulaw", "pcm_u8", "pcm_s8", "pcm_s8_planar", "pcm_bluray", "pcm_dvd"),
    *("pcm_f16le", "pcm_f24le", "pcm_f32be", "pcm_f32le", "pcm_f64be", "pcm_f64le", "pcm_s16be"),
    *("pcm_s16be_planar", "pcm_s16le", "pcm_s16le_planar", "pcm_s24be", "pcm_s24le"),
    *("pcm_s24le_planar", "pcm_s32be", "pcm_s32le", "pcm_s32le_planar", "pcm_s64be", "pcm_s64le"),
    *("pcm_u16be", "pcm_u16le", "pcm_u24be", "pcm_u24le", "pcm_u32be", "pcm_u32le"),
)
"""Every decoder that may ever run here: audio only."""

OPTIONS: Final = {
    "format_whitelist": ",".join(DEMUXERS),
    "codec_whitelist": ",".join(CODECS),
    "protocol_whitelist": "none",
    # PCM in WAV is otherwise searched for hidden formats: 4 to 30 ms for a short clip.
    "max_probe_packets": "0",
    # Bytes of PCM a packet: fewer, larger packets than the default of 4096.
    "max_size": "16384",
}
"""How FFmpeg opens whatever it opens."""

_FAILURES: Final = (FFmpegError, ValueError, IndexError, EOFError, OverflowError, RuntimeError)
"""What PyAV raises for files that FFmpeg cannot read."""

_TAGS: Final = (b"ID3", b"TAG", b"APE")

_NO_SIZES: Final = ("amr", "loas", "mpegts")
"""Bare streams of which nothing but an undecodable end says that they were cut."""

_MAX_JOINED: Final = 1_000
"""Joined WAV files that are followed; opening each has its price."""

_MAX_DEMUX_ERRORS: Final = 8
"""Errors in a row, without a packet between, after which the rest of a file is given up."""


class Decoder:
    """One body, opened; the first samples are decoded, so its real rate and channels are known.

    Attributes:
        format: plain name of the container.
        sample_rate: Hz, as decoded.
        channels: as decoded.
        damage: complete once `blocks` has ended.
        promised_seconds: see `Source`.

    Raises:
        EmotionError: `unsupported_media_type`, `audio_decode_failed`,
            `no_audio_stream`, `audio_empty`, `sample_rate_out_of_range`.
    """

    def __init__(self, body: Body, limits: DecodeLimits) -> None:
        kind = known_kind(body)
        self.format = kind.name
        self.damage = Damage()
        self._limits = limits
        self.promised_seconds = 0.0
        self._body, self._kind = body.part(kind.offset), kind
        self._frames = self._decode_all(self._body, kind)
        self._first = next(self._frames, None)
        if self._first is None:
            raise self._nothing_decoded()
        self.sample_rate = self._first[0].sample_rate
        self.channels = channel_count(self._first[0])
        self._check(self.sample_rate, self.channels)

    def sounds_at(self, seconds: float) -> bool:
        """See `Source`."""
        # apart from the first one: reading it from two places would confuse both
        return _Stream(self._body.part(0), self._kind, self._limits, Damage()).sounds_at(seconds)

    def blocks(self) -> Iterator[Samples]:
        """The samples in order, as arrays `[channels, n]`, int16 or float32. Once only."""
        bridge = RateBridge(self.sample_rate)
        for frame, count in chain([self._first] if self._first else [], self._frames):
            if frame.sample_rate != self.sample_rate:
                self._check(frame.sample_rate, channel_count(frame))
            for bridged in bridge.convert(frame):
                yield match_channels(frame_samples(bridged), self.channels)[:, :count]
        for bridged in bridge.flush():
            yield match_channels(frame_samples(bridged), self.channels)

    def _decode_all(self, body: Body, kind: Kind) -> Iterator[tuple[AudioFrame, int | None]]:
        """The frames of the body, and of those joined to it that FFmpeg would not see."""
        stream = _Stream(body, kind, self._limits, self.damage)
        self.promised_seconds = stream.promised_seconds()
        yield from stream.frames()
        for _ in range(_MAX_JOINED):
            following = next_wav(body) if kind.demuxer == "wav" else None
            if following is None:
                return
            body = body.part(following)
            try:
                stream = _Stream(body, kind, self._limits, self.damage)
            except EmotionError:
                self.damage.corrupt += 1
                return
            yield from stream.frames()

    def _check(self, sample_rate: int, channels: int) -> None:
        check_sample_rate(sample_rate, self._limits)
        check_channels(channels, self._limits)

    def _nothing_decoded(self) -> EmotionError:
        if self.damage.corrupt:
            return EmotionError(
                "audio_decode_failed",
                f"None of the {self.damage.corrupt} audio packets of the file could be decoded.",
            )
        return EmotionError("audio_empty", "The audio holds 0 samples.")


class _Stream:
    """The audio stream of one container."""

    def __init__(self, body: Body, kind: Kind, limits: DecodeLimits, damage: Damage) -> None:
        self._body, self._kind, self._damage = body, kind, damage
        self._packets = self._samples = self._indexed = 0
        self._last_packet: Any = b""
        self._bad_tail = False
        try:
            self._container: Any = av.open(
                body,
                format=kind.demuxer,
                options=OPTIONS,
                metadata_errors="replace",
            )
        except _FAILURES as error:
            raise EmotionError(
                "audio_decode_failed",
                f"The content looks like {kind.name}, but its header cannot be read.",
            ) from error
        self._stream = self._audio_stream(limits)

    def _audio_stream(self, limits: DecodeLimits) -> Any:
        streams = self._container.streams
        stream = streams.best("audio") or next(iter(streams.audio), None)
        if stream is None:
            raise EmotionError("no_audio_stream", f"The {self._kind.name} file holds no audio.")
        codec = stream.codec_context
        if codec is None or codec.name not in CODECS:
            raise EmotionError(
                "audio_decode_failed", "The audio in the file has a codec that is not supported."
            )
        if codec.sample_rate:
            check_sample_rate(codec.sample_rate, limits)
        if self._kind.demuxer == "mov" and stream.duration and stream.time_base:
            self._indexed = int(stream.duration * stream.time_base * codec.sample_rate)
        codec.thread_count = 1
        codec.thread_type = "NONE"
        return stream

    def promised_seconds(self) -> float:
        """Length by the header; infinite for FLAC without one, which packs silence 300 to 1."""
        promised = self._container.duration
        if promised is None:
            return math.inf if self._kind.demuxer == "flac" else 0.0
        return float(promised / av.time_base)

    def sounds_at(self, seconds: float) -> bool:
        """See `Source`; the stream is used up."""
        base = self._stream.time_base
        if not base:
            return False
        with self._container:
            try:
                self._container.seek(int(seconds / base), stream=self._stream)
                packet = next(self._container.demux(self._stream), None)
            except _FAILURES:
                return False  # there is nothing so far behind the beginning
            return bool(packet and packet.size and (packet.pts or 0) * base >= seconds - 1)

    def frames(self) -> Iterator[tuple[AudioFrame, int | None]]:
        """All frames that decode, with how many samples of it count (None: all).

        Packets that do not decode are counted as damage.
        """
        frame = None
        with self._container:
            for packet in self._demux():
                for following in self._decode(packet):
                    if frame is not None:
                        yield frame, None
                    frame = following
        if frame is not None:
            yield frame, self._without_padding(frame)
        self._judge_end()

    def _without_padding(self, last: AudioFrame) -> int | None:
        """Samples of the last frame that are sound: an MP4's index tells the padding apart."""
        surplus = self._samples - self._indexed
        return last.samples - surplus if 0 < surplus < last.samples else None

    def _judge_end(self) -> None:
        cut = self.is_cut() or (self._bad_tail and self._kind.demuxer in _NO_SIZES)
        self._damage.truncated |= cut
        # A last packet that was cut is the truncation itself, not damage of its own.
        if cut and self._bad_tail and self._samples:
            self._damage.corrupt -= 1

    def _decode(self, packet: Any) -> list[AudioFrame]:
        try:
            frames: list[AudioFrame] = packet.decode()
        except _FAILURES:
            # Joined MP3s have tags in the middle.
            if bytes(packet)[:3] not in _TAGS:
                self._bad_tail = True
                self._damage.corrupt += 1
            return []
        self._bad_tail = self._bad_tail and not packet.size
        self._samples += sum(frame.samples for frame in frames)
        return [frame for frame in frames if frame.samples]

    def _demux(self) -> Iterator[Any]:
        """The packets; an error in the middle is damage, and what follows it is still read."""
        errors = 0
        while errors < _MAX_DEMUX_ERRORS:
            try:
                for packet in self._container.demux(self._stream):
                    if packet.size:
                        errors = 0
                        self._packets += 1
                        self._last_packet = packet
                    yield packet
            except _FAILURES:
                if not errors:
                    self._bad_tail = True
                    self._damage.corrupt += 1
                errors += 1
            else:
                return

    def is_cut(self) -> bool:
        """Whether the container promised more than was read; once all frames are decoded."""
        demuxer = self._kind.demuxer
        packets = promised_packets(demuxer, self._body)
        samples = promised_samples(demuxer, self._body)
        return (
            is_cut(demuxer, self._body)
            # Encoders differ in whether the header's own frame counts.
            or (packets is not None and self._packets + 1 < packets)
            or (samples is not None and self._samples < samples)
            or packet_is_cut(demuxer, bytes(self._last_packet))
        )
