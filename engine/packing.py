"""Where every clip of a packed batch lies: no padding, one row, one list of tokens.

Clips lie one after the other, each rounded up to whole hops, so that frame `t` of a clip at
sample offset `o` is frame `o / hop + t` of the row: convolutions without padding never look
across a border for a frame that lies inside one clip.

The rows of a batch are rounded up to a few sizes (`bucket`), so that kernels made for a size
are made once: oneDNN makes one for each (measured: 10 ms for a length not seen before, more
than twice a small model's time for a clip), and so would a compiler or a captured graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Packing:
    """Index tables of one batch (all int64, on the encoder's device).

    Attributes:
        frames: frames of each clip.
        offsets: first sample of each clip in the row; multiples of the hop.
        row_samples: length of the row.
        row_frames: rows of the convolutions' output that lie inside one clip [N], then filler
            up to a bucket.
        spaced: place of each frame in the positional row, clips apart by the gap; filler as above.
        spaced_length: length of the positional row, a bucket.
        tokens: order that puts each clip's extra tokens before its frames, as indices into
            [extra tokens; all frames] [N + clips * extra], then filler up to a bucket.
        token_bounds: first token of each clip, and the end of the last [clips + 1].
        frame_tokens: places of the frames among the tokens [N].
    """

    frames: tuple[int, ...]
    offsets: tuple[int, ...]
    row_samples: int
    row_frames: Tensor
    spaced: Tensor
    spaced_length: int
    tokens: Tensor
    token_bounds: tuple[int, ...]
    frame_tokens: Tensor


def bucket(rows: int) -> int:
    """The number of rows that is computed for `rows`: at most 15 or a sixteenth part more.

    Sixteen sizes between a power of two and the next; each costs about 0.3 MiB for each kernel.
    """
    step = max(8 if rows <= 128 else 16, (1 << (rows - 1).bit_length()) // 32)
    return -(-rows // step) * step


def buckets(most: int) -> list[int]:
    """All buckets up to that of `most` rows, ascending."""
    sizes = [bucket(1)]
    while sizes[-1] < most:
        sizes.append(bucket(sizes[-1] + 1))
    return sizes


def pack(lengths: Sequence[int], config: ModelConfig, device: torch.device) -> Packing:
    """Lay out clips of `lengths` samples, each at least the receptive field."""
    frames = tuple(config.frames(length) for length in lengths)
    extra, gap = config.extra_tokens, config.gap
    offsets: list[int] = []
    bounds = [0]
    row, spaced = 0, gap
    row_frames: list[Tensor] = []
    spaced_places: list[Tensor] = []
    tokens: list[Tensor] = []
    first_frame = 0
    for length, count in zip(lengths, frames, strict=True):
        steps = torch.arange(count)
        offsets.append(row)
        row_frames.append(steps + row // config.hop)
        spaced_places.append(steps + spaced)
        tokens += [torch.arange(extra), steps + extra + first_frame]
        row += -(-length // config.hop) * config.hop
        spaced += count + gap
        first_frame += count
        bounds.append(bounds[-1] + extra + count)
    order = torch.cat(tokens)
    return Packing(
        frames=frames,
        offsets=tuple(offsets),
        row_samples=row,
        row_frames=_filled(torch.cat(row_frames)).to(device),
        spaced=_filled(torch.cat(spaced_places)).to(device),
        spaced_length=bucket(spaced),
        tokens=_filled(order).to(device),
        token_bounds=tuple(bounds),
        frame_tokens=(order >= extra).nonzero().squeeze(1).to(device),
    )


def _filled(places: Tensor) -> Tensor:
    # filler repeats place 0: real numbers, which nothing reads
    return F.pad(places, (0, bucket(places.numel()) - places.numel()))


def lay_row(waves: Sequence[Tensor], packing: Packing) -> Tensor:
    """One row [row_samples] with every wave at its offset; the rounding is zeros."""
    row = waves[0].new_zeros(packing.row_samples)
    for wave, offset in zip(waves, packing.offsets, strict=True):
        row[offset : offset + wave.numel()] = wave
    return row
