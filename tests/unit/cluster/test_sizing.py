"""The arithmetic of the sizing page, and that the page shows what it gives."""

import json
from pathlib import Path

import pytest

from cluster.sizing import (
    PUBLIC,
    RESULTS,
    Measured,
    clips_per_second,
    gpu_fraction,
    need,
    read_measured,
    replicas_per_card,
    table,
)

ROOT = Path(__file__).parents[3]
CARD = Measured(
    device="card",
    dtype="float16",
    audio_seconds_per_second=3000.0,
    replica_bytes=3 * 2**30,
    device_bytes=24 * 2**30,
    start_seconds=9.5,
    command="python -m benchmarks sizing",
)


def test_clips_cost_their_seconds() -> None:
    assert clips_per_second(3000.0, 10) == 300.0


def test_replicas_fit_beside_the_preprocessing() -> None:
    # 24 GiB less a fifth and a twentieth are 18: six of 3
    assert replicas_per_card(24 * 2**30, 3 * 2**30) == 6
    assert replicas_per_card(2 * 2**30, 3 * 2**30) == 0
    assert replicas_per_card(0, 0) == 0


@pytest.mark.parametrize("replicas", range(1, 20))
def test_fractions_add_up_to_no_more_than_the_card(replicas: int) -> None:
    assert replicas * gpu_fraction(replicas) + 0.2 <= 1 + 1e-9
    assert gpu_fraction(4) == 0.2


def test_the_next_device_is_due_where_the_planned_share_is_reached() -> None:
    few = need(200, 10, 3000.0)
    assert (few.devices, few.next_device_at) == (1, pytest.approx(210))
    assert need(210, 10, 3000.0).devices == 1
    assert need(211, 10, 3000.0).devices == 2
    assert need(0, 10, 3000.0).devices == 1


def test_the_benchmark_s_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "sizing.json"
    assert read_measured(file) == []
    entry = {name: getattr(CARD, name) for name in CARD.__dataclass_fields__}
    file.write_text(json.dumps([entry]))
    assert read_measured(file) == [CARD]
    file.write_text(json.dumps([{**entry, "speed": 1}]))
    with pytest.raises(TypeError, match="speed"):
        read_measured(file)


def test_the_table_keeps_measured_and_reported_apart() -> None:
    rows = table([CARD]).splitlines()
    assert rows[2] == (
        "| card, float16 | measured: `python -m benchmarks sizing` | 3 000 | 1 000 / 300 / 100 "
        "| 6 | 9.5 s |"
    )
    for one in PUBLIC:
        [row] = [row for row in rows if row.startswith(f"| {one.device} ")]
        assert "not measured by us" in row
    assert "no measured figures yet" in table([])


def test_the_page_shows_the_table() -> None:
    """Anew: python -m cluster.sizing"""
    page = (ROOT / "docs" / "sizing.md").read_text("utf-8")
    assert table(read_measured(ROOT / RESULTS)) in page
