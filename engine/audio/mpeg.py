"""Frame headers of the streams that have no container: MPEG audio, ADTS, LOAS."""

from typing import Final

_KBITS: Final = {
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Bit rates by (version 1, layer); ISO/IEC 11172-3 and 13818-3."""

_RATES: Final = {
    3: (44_100, 48_000, 32_000),
    2: (22_050, 24_000, 16_000),
    0: (11_025, 12_000, 8_000),
}
"""Sample rates by version bits: 3 is version 1, 2 is version 2, 0 is version 2.5."""


def mpeg_layer(header: bytes) -> int:
    """1, 2 or 3 for the layer of an MPEG audio frame header; 4 is reserved."""
    return 4 - (header[1] >> 1 & 3)


def mpeg_frame_size(header: bytes) -> int:
    """Bytes of the MPEG audio frame that begins with these four; 0 for none."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return 0
    version, layer = header[1] >> 3 & 3, mpeg_layer(header)
    kbits, rate, padding = header[2] >> 4, header[2] >> 2 & 3, header[2] >> 1 & 1
    if version == 1 or layer == 4 or kbits in (0, 15) or rate == 3:
        return 0
    bits = _KBITS[version == 3, layer][kbits - 1] * 1000
    hertz = _RATES[version][rate]
    if layer == 1:
        return (12 * bits // hertz + padding) * 4
    return (144 if layer == 2 or version == 3 else 72) * bits // hertz + padding


def adts_frame_size(header: bytes) -> int:
    """Bytes of the ADTS (AAC) frame that begins with these; 0 for none."""
    if len(header) < 6 or header[0] != 0xFF or header[1] & 0xF6 != 0xF0:
        return 0
    if header[2] >> 2 & 15 > 12:
        return 0
    size = (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
    return size if size > 7 else 0


def loas_frame_size(header: bytes) -> int:
    """Bytes of the LOAS (AAC/LATM) frame that begins with these; 0 for none."""
    if len(header) < 3 or header[0] != 0x56 or header[1] & 0xE0 != 0xE0:
        return 0
    return ((header[1] & 0x1F) << 8 | header[2]) + 3


def promised_mpeg_frames(frame: bytes) -> int | None:
    """Frames that the Xing, Info or VBRI header in a first MPEG audio frame promises."""
    version, mono = frame[1] >> 3 & 3, frame[3] >> 6 == 3
    side = (21 if mono else 36) if version == 3 else (13 if mono else 21)
    if frame[side : side + 4] in (b"Xing", b"Info"):
        counted = frame[side + 7 : side + 8] and frame[side + 7] & 1
        return int.from_bytes(frame[side + 8 : side + 12], "big") if counted else None
    if frame[36:40] == b"VBRI":
        return int.from_bytes(frame[50:54], "big")
    return None
