"""How many replicas, cards and nodes: a computed table from measured figures.

`python -m cluster.sizing benchmarks/results/sizing.json` prints the table of docs/sizing.md.
The file is a list of objects with the fields of `Measured`; the benchmark writes it.
"""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path("benchmarks/results/sizing.json")
CLIP_SECONDS = (3, 10, 30)
GIB = 2**30
PLANNED_UTILISATION = 0.7
"""What the autoscaling policy plans with; above it waiting grows faster than load."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One device, measured by us.

    Attributes:
        device, dtype: what it ran on, and in which number format.
        audio_seconds_per_second: engine at saturation, clips of mixed lengths.
        replica_bytes: memory of one replica on the device at full batches; 0 on a CPU.
        device_bytes: memory of the device; 0 on a CPU.
        start_seconds: from the start of a replica to its first answer.
        command: what made these figures.
    """

    device: str
    dtype: str
    audio_seconds_per_second: float
    replica_bytes: int
    device_bytes: int
    start_seconds: float
    command: str


@dataclass(frozen=True, slots=True)
class Public:
    """What others report of the plain `funasr.AutoModel` behind a web page, not measured by us.

    Attributes:
        clips_per_second: at the best batch size that they tried.
        note: conditions, in their words as far as they gave them.
    """

    device: str
    clips_per_second: float | None
    note: str


PUBLIC = (
    Public(
        "A10G",
        6.0,
        "batch 1 / 4 / 8: 1.6 / 4.5 / 6.0 clips/s; warm request 0.42 s (1–3 s clip), "
        "0.61 s (5–10 s), 0.89 s (15–30 s)",
    ),
    Public("RTX 4090", None, "warm request after their optimisation: P50 0.38 s, P95 0.43 s"),
    Public(
        "T4",
        None,
        "a cost report with clips of mostly 3–10 s: quantised, about 15 % slower than its A100",
    ),
    Public(
        "A100 40 GB",
        None,
        "the same report: 0.8 s per clip on average, 8 requests at once, 2.1 GB at the peak",
    ),
)


@dataclass(frozen=True, slots=True)
class Need:
    """What a load takes.

    Attributes:
        devices: cards (or machines, on a CPU) at the planned utilisation.
        next_device_at: clips per second at which one more is due.
    """

    devices: int
    next_device_at: float


def clips_per_second(audio_seconds_per_second: float, clip_seconds: float) -> float:
    """Clips of one length per second: a packed batch costs what its seconds cost."""
    return audio_seconds_per_second / clip_seconds


def replicas_per_card(
    device_bytes: int, replica_bytes: int, preprocess_share: float = 0.2, spare: float = 0.05
) -> int:
    """Model replicas that fit on a card beside the preprocessing; 0: not one does.

    More than one does not make a card faster where one fills it. It is what keeps a card at
    work while a replica is replaced.
    """
    free = 1 - preprocess_share - spare
    return int(device_bytes * free / replica_bytes + 1e-9) if replica_bytes else 0


def gpu_fraction(replicas: int, preprocess_share: float = 0.2) -> float:
    """`model_gpus` for that many replicas on a card, rounded down to hundredths."""
    return math.floor((1 - preprocess_share) / replicas * 100 + 1e-9) / 100


def need(
    peak_clips_per_second: float,
    clip_seconds: float,
    audio_seconds_per_second: float,
    utilisation: float = PLANNED_UTILISATION,
) -> Need:
    """Devices for a peak load, and the load at which the next one is due.

    Args:
        peak_clips_per_second: highest load that must be answered without a growing queue.
        clip_seconds: mean length of a clip.
        audio_seconds_per_second: of one device at saturation.
    """
    each = clips_per_second(audio_seconds_per_second, clip_seconds) * utilisation
    devices = max(1, math.ceil(peak_clips_per_second / each - 1e-9))
    return Need(devices, devices * each)


def read_measured(path: Path = RESULTS) -> list[Measured]:
    """The benchmark's figures; none where it has not run.

    Raises:
        TypeError: an entry has other fields than `Measured`.
    """
    if not path.exists():
        return []
    return [Measured(**entry) for entry in json.loads(path.read_text("utf-8"))]


def table(measured: Sequence[Measured]) -> str:
    """The table of docs/sizing.md in Markdown."""
    lengths = " / ".join(str(seconds) for seconds in CLIP_SECONDS)
    rows = [
        "| Device | Source | Audio-seconds per second "
        f"| Clips per second of {lengths} s | Replicas per card | Start |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_measured_row(one) for one in measured),
    ]
    if not measured:
        rows.append("| – | no measured figures yet | – | – | – | – |")
    return "\n".join([*rows, *(_public_row(one) for one in PUBLIC)]) + "\n"


def _measured_row(one: Measured) -> str:
    clips = (clips_per_second(one.audio_seconds_per_second, s) for s in CLIP_SECONDS)
    per_card = replicas_per_card(one.device_bytes, one.replica_bytes)
    return (
        f"| {one.device}, {one.dtype} | measured: `{one.command}` "
        f"| {_figure(one.audio_seconds_per_second)} | {' / '.join(map(_figure, clips))} "
        f"| {per_card or '–'} | {_figure(one.start_seconds)} s |"
    )


def _figure(value: float) -> str:
    """Three significant digits, never with an exponent."""
    return f"{float(f'{value:.3g}'):,.10g}".replace(",", " ")


def _public_row(one: Public) -> str:
    best = "–" if one.clips_per_second is None else f"{one.clips_per_second:g}, lengths not given"
    return f"| {one.device} | not measured by us: {one.note} | – | {best} | – | – |"


if __name__ == "__main__":
    print(table(read_measured(Path(sys.argv[1]) if sys.argv[1:] else RESULTS)), end="")
