"""Whether a container promises more than it holds: checks that FFmpeg does not make.

Each reads the container's own sizes, never all of the file. Sizes of 0 or all ones are those
of a stream whose end was unknown when its header was written, not promises.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Literal

from engine.audio.body import Body
from engine.audio.mpeg import adts_frame_size, mpeg_frame_size, promised_mpeg_frames

MAX_ELEMENTS: Final = 500_000
"""Most chunks, boxes or elements looked at: a file of tiny ones must not cost seconds."""

STREAM_SIZES: Final = (0, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
Element = tuple[bytes, int, int]
"""Name, offset of the content, size of the content."""


def _chunks(body: Body, at: int, order: Literal["big", "little"]) -> Iterator[Element]:
    """The chunks of a RIFF or AIFF file from `at`: name and size of 4 bytes, padded to 2."""
    while len(head := body.at(at, 8)) == 8:
        size = int.from_bytes(head[4:], order)
        yield head[:4], at + 8, size
        at += 8 + size + (size & 1)


def _caf_chunks(body: Body) -> Iterator[Element]:
    at = 8
    while len(head := body.at(at, 12)) == 12:
        size = int.from_bytes(head[4:], "big")
        yield head[:4], at + 12, size
        at += 12 + size


def _w64_chunks(body: Body) -> Iterator[Element]:
    """Sizes count the 24 bytes of the header; chunks are padded to 8."""
    at = 40
    while len(head := body.at(at, 24)) == 24:
        size = int.from_bytes(head[16:], "little")
        yield head[:4], at + 24, size - 24 if size not in STREAM_SIZES else size
        at += max(24, size + 7 & ~7)


def _reaches_beyond(body: Body, elements: Iterator[Element], samples: bytes) -> bool:
    """Whether the element that holds the samples ends behind the end of the body."""
    return any(
        offset + size > body.size
        for name, offset, size in islice(elements, MAX_ELEMENTS)
        if name == samples and size not in STREAM_SIZES
    )


def _wav_data(body: Body) -> tuple[int, int] | None:
    """(offset, size) of the samples; a size of 0 where the file is a stream."""
    order: Literal["big", "little"] = "big" if body.at(0, 4) == b"RIFX" else "little"
    long_size = 0
    for name, offset, size in islice(_chunks(body, 12, order), MAX_ELEMENTS):
        if name == b"ds64":
            long_size = int.from_bytes(body.at(offset + 8, 8), "little")
        if name == b"data":
            size = long_size if size == 0xFFFFFFFF else size
            return offset, 0 if size in STREAM_SIZES else size
    return None


def next_wav(body: Body) -> int | None:
    """Where the next of several joined WAV files begins; None for a single one."""
    data = _wav_data(body)
    if data is None or not data[1]:
        return None
    rest = _chunks(body, data[0] + data[1] + (data[1] & 1), "little")
    for name, offset, _ in islice(rest, MAX_ELEMENTS):
        if name == b"RIFF" and body.at(offset, 4) == b"WAVE":
            return offset - 8
    return None


def _wav_is_cut(body: Body) -> bool:
    data = _wav_data(body)
    return data is not None and sum(data) > body.size


def _w64_is_cut(body: Body) -> bool:
    return _reaches_beyond(body, _w64_chunks(body), b"data")


def _aiff_is_cut(body: Body) -> bool:
    return _reaches_beyond(body, _chunks(body, 12, "big"), b"SSND")


def _caf_is_cut(body: Body) -> bool:
    return _reaches_beyond(body, _caf_chunks(body), b"data")


def _avi_is_cut(body: Body) -> bool:
    return any(
        offset + size > body.size for _, offset, size in islice(_chunks(body, 12, "little"), 1_000)
    )


def _flv_is_cut(body: Body) -> bool:
    """Whether the last tag, each with its size before and behind it, is incomplete."""
    at = 13
    for _ in range(MAX_ELEMENTS):
        head = body.at(at, 4)
        if len(head) < 4:
            break
        at += 15 + int.from_bytes(head[1:], "big")
    return at != body.size and at - 4 != body.size


def _au_is_cut(body: Body) -> bool:
    offset, size = (int.from_bytes(body.at(at, 4), "big") for at in (4, 8))
    return size not in STREAM_SIZES and offset + size > body.size


def _ogg_is_cut(body: Body) -> bool:
    """Whether the last page is incomplete, or its last packet goes on in a page that is missing."""
    tail = body.at(max(0, body.size - 65_536 - 27), 65_536 + 27)
    at = tail.rfind(b"OggS")
    if at < 0 or len(tail) - at < 27:
        return True
    lacing = tail[at + 27 : at + 27 + tail[at + 26]]
    end = at + 27 + tail[at + 26] + sum(lacing)
    unfinished = bool(lacing) and lacing[-1] == 255
    begun = tail[end:] in (b"O", b"Og", b"Ogg")
    return end > len(tail) or unfinished or begun


def _mp4_is_cut(body: Body) -> bool:
    """Whether a box at the top reaches beyond the end."""
    at = 0
    for _ in range(MAX_ELEMENTS):
        head = body.at(at, 16)
        size = int.from_bytes(head[:4], "big")
        if size == 1:
            size = int.from_bytes(head[8:16], "big")
        if len(head) < 8 or size < 8:
            break
        at += size
    return at > body.size


_SEGMENT: Final = 0x18538067
_CLUSTER: Final = 0x1F43B675


def _ebml_number(data: bytes) -> tuple[int, int, bool]:
    """(value with its marker, bytes, whether it means "unknown") of an EBML number."""
    # a first byte of zero would announce more than the eight bytes that there may be
    length = 9 - data[0].bit_length() if data and data[0] else 9
    if length > min(8, len(data)):
        return 0, 0, False
    value = int.from_bytes(data[:length], "big")
    return value, length, value == (1 << 7 * length + 1) - 1


def _matroska_is_cut(body: Body) -> bool:
    """Whether an element reaches beyond the end; the segment and clusters of unknown size,
    which live recordings have, are looked into."""
    at = 0
    for _ in range(MAX_ELEMENTS):
        head = body.at(at, 12)
        name, name_bytes, _ = _ebml_number(head)
        size, size_bytes, unknown = _ebml_number(head[name_bytes:])
        if not name_bytes or not size_bytes:
            break
        at += name_bytes + size_bytes
        size -= 1 << 7 * size_bytes
        if name == _SEGMENT and not unknown and at + size > body.size:
            return True
        if name != _SEGMENT and not (name == _CLUSTER and unknown):
            at += size
    return at > body.size


_BY_SIZES: Final[dict[str, Callable[[Body], bool]]] = {
    "wav": _wav_is_cut,
    "w64": _w64_is_cut,
    "aiff": _aiff_is_cut,
    "caf": _caf_is_cut,
    "au": _au_is_cut,
    "avi": _avi_is_cut,
    "flv": _flv_is_cut,
    "mpegts": lambda body: body.size % 188 != 0,
    "ogg": _ogg_is_cut,
    "mov": _mp4_is_cut,
    "matroska": _matroska_is_cut,
}


def is_cut(demuxer: str, body: Body) -> bool:
    """Whether the container's sizes reach beyond the end of the body."""
    check = _BY_SIZES.get(demuxer)
    return check is not None and check(body)


def promised_packets(demuxer: str, body: Body) -> int | None:
    """Packets that the Xing, Info or VBRI header of an MP3 promises; None where it has none."""
    if demuxer != "mp3":
        return None
    head = body.at(0, 65_536)
    at = head.find(b"\xff")
    while at >= 0 and not mpeg_frame_size(head[at : at + 4]):
        at = head.find(b"\xff", at + 1)
    return promised_mpeg_frames(head[at : at + 60]) if at >= 0 else None


def promised_samples(demuxer: str, body: Body) -> int | None:
    """Samples that FLAC's STREAMINFO promises; None where it does not say."""
    if demuxer != "flac" or body.at(0, 4) != b"fLaC":
        return None
    return int.from_bytes(body.at(18, 8), "big") & 0xFFFFFFFFF or None


def packet_is_cut(demuxer: str, packet: bytes) -> bool:
    """Whether the last packet of a bare stream is shorter than its own header says."""
    sizes = {"mp3": mpeg_frame_size, "aac": adts_frame_size}
    return demuxer in sizes and len(packet) < sizes[demuxer](packet[:8])
