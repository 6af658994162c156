"""What a body is, by its content alone.

FFmpeg would guess among hundreds of formats, some of which are texts that make it open other
files or the network. Here a closed table of audio containers decides, and FFmpeg is told the one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.audio.body import Body
from engine.audio.mpeg import adts_frame_size, loas_frame_size, mpeg_frame_size, mpeg_layer
from engine.errors import EmotionError

SEARCH_BYTES: Final = 65_536
"""How far the first frame of a stream without a container may be (junk, a cut frame)."""

CHAIN: Final = 4
"""Consecutive frames with consistent headers that make such a stream; chance finds none."""

_MAX_TAGS: Final = 64
"""Of ID3v2 in front of the sound; nobody writes more than two."""

FrameSize = Callable[[bytes], int]


@dataclass(frozen=True, slots=True)
class Kind:
    """A container: FFmpeg's name of the format, the plain name, where it begins."""

    demuxer: str
    name: str
    offset: int = 0


_MAGIC: Final = (
    (0, b"OggS", "ogg", "ogg"),
    (0, b"fLaC", "flac", "flac"),
    (0, b"RF64", "wav", "wav"),
    (0, b"BW64", "wav", "wav"),
    (0, b"riff\x2e\x91\xcf\x11", "w64", "w64"),
    (0, b"caff\0", "caf", "caf"),
    (0, b".snd", "au", "au"),
    (0, b"#!AMR", "amr", "amr"),
    (0, b"wvpk", "wv", "wavpack"),
    (0, b"TTA1", "tta", "tta"),
    (0, b"MAC ", "ape", "ape"),
    (0, b"FLV\x01", "flv", "flv"),
    (0, b"NIST_1A\n", "nistsphere", "sphere"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf", "asf"),
    (0, b"\x00\x00\x01\xba", "mpeg", "mpeg"),
    (8, b"AVI ", "avi", "avi"),
    (8, b"WAVE", "wav", "wav"),
    (8, b"AIFF", "aiff", "aiff"),
    (8, b"AIFC", "aiff", "aiff"),
)
_WRAPPER: Final = {
    b"AVI ": (b"RIFF",),
    b"WAVE": (b"RIFF", b"RIFX"),
    b"AIFF": (b"FORM",),
    b"AIFC": (b"FORM",),
}
_MP4_BOXES: Final = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
_MP4_BRANDS: Final = {b"M4A ": "m4a", b"M4B ": "m4a", b"qt  ": "mov", b"3gp": "3gp", b"3g2": "3g2"}

DEMUXERS: Final = (
    *dict.fromkeys(demuxer for _, _, demuxer, _ in _MAGIC),
    *("matroska,webm", "mov,mp4,m4a,3gp,3g2,mj2", "mp3", "aac", "loas", "mpegts"),
)
"""Every format that FFmpeg may ever open here."""


def sniff(body: Body) -> Kind | None:
    """The container of `body`; None where it is not an audio container of the table."""
    offset = _after_id3(body)
    head = body.at(offset, SEARCH_BYTES)
    kind = _by_magic(head) or _by_boxes(head) or _by_chain(body.part(offset), head)
    if kind is not None:
        return Kind(kind.demuxer, kind.name, offset)
    return Kind("mp3", "mp3") if offset else None


def known_kind(body: Body) -> Kind:
    """`sniff`, where it has to be a container.

    Raises:
        EmotionError: `empty_body`, `unsupported_media_type`.
    """
    if body.size == 0:
        raise EmotionError("empty_body", "The body is empty: 0 bytes.")
    kind = sniff(body)
    if kind is None:
        raise EmotionError(
            "unsupported_media_type",
            f"The content of these {body.size} bytes is no known audio container.",
        )
    return kind


def _after_id3(body: Body) -> int:
    """Where the sound begins behind ID3v2 tags, which may stand before any format."""
    offset = 0
    for _ in range(_MAX_TAGS):
        head = body.at(offset, 10)
        if head[:3] != b"ID3" or len(head) < 10:
            break
        size = 0
        for byte in head[6:10]:
            size = size << 7 | byte & 0x7F
        offset += 10 + size + (10 if head[5] & 0x10 else 0)
    return offset


def _by_magic(head: bytes) -> Kind | None:
    for at, magic, demuxer, name in _MAGIC:
        if head[at : at + len(magic)] == magic and (not at or head[:4] in _WRAPPER[magic]):
            return Kind(demuxer, name)
    if head[:4] == b"\x1aE\xdf\xa3":
        return Kind("matroska", "webm" if b"webm" in head[:64] else "matroska")
    if len(head) > 752 and all(head[at] == 0x47 for at in range(0, 753, 188)):
        return Kind("mpegts", "mpegts")
    return None


def _by_boxes(head: bytes) -> Kind | None:
    """The MP4 family: a box whose type is known, named after its brand."""
    if head[4:8] not in _MP4_BOXES:
        return None
    brand = head[8:12] if head[4:8] == b"ftyp" else b"qt  "
    return Kind("mov", _MP4_BRANDS.get(brand) or _MP4_BRANDS.get(brand[:3]) or "mp4")


_BARE: Final = (
    (mpeg_frame_size, b"\xff", (0xFE, 0x0C), "mp3"),
    (adts_frame_size, b"\xff", (0xF6, 0xFC), "aac"),
    (loas_frame_size, b"\x56", (0xE0, 0x00), "loas"),
)
"""Per bare stream: frame size, first byte, the bits of bytes 1 and 2 that never change."""


def _by_chain(body: Body, head: bytes) -> Kind | None:
    """A bare stream of frames, each header where the one before says."""
    for frame_size, sync, fixed_bits, demuxer in _BARE:
        at = head.find(sync)
        while at >= 0:
            if frame_size(head[at : at + 8]) and _chained(body, at, frame_size, fixed_bits):
                second_layer = demuxer == "mp3" and mpeg_layer(head[at : at + 4]) < 3
                return Kind(demuxer, "mp2" if second_layer else demuxer.replace("loas", "aac"))
            at = head.find(sync, at + 1)
    return None


def _chained(body: Body, at: int, frame_size: FrameSize, fixed_bits: tuple[int, int]) -> bool:
    """Whether frames follow one another from `at`: four, or up to the end if at the beginning."""
    begin, first = at, body.at(at, 3)
    for _ in range(CHAIN):
        header = body.at(at, 8)
        size = frame_size(header)
        if not size or any(
            (header[byte] ^ first[byte]) & bits for byte, bits in enumerate(fixed_bits, start=1)
        ):
            return False
        at += size
        if at >= body.size:
            return begin == 0
    return True
