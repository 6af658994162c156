"""The keys in force: the file's lines, its changes and losses, and the comparison."""

import hmac
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.http.keys import ApiKeys, KeysError, keys_from

GOOD = "k-abcdefghijklmnop"
OTHER = "k-0123456789"


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Texts of what Serve's logger says."""
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("ray.serve")
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


def test_every_key_is_compared_whatever_the_earlier_ones_gave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = ApiKeys([GOOD, OTHER, "third"])
    lengths: list[tuple[int, int]] = []
    plain = hmac.compare_digest

    def counted(known: bytes, candidate: bytes) -> bool:
        lengths.append((len(known), len(candidate)))
        return plain(known, candidate)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    for presented in (GOOD, OTHER, "third", GOOD[:-1] + "x", "x", "y" * 5000):
        lengths.clear()
        assert keys.accept(presented.encode()) == (presented in (GOOD, OTHER, "third"))
        assert lengths == [(32, 32)] * 3


def test_lines_of_the_file(tmp_path: Path, logged: list[str]) -> None:
    file = tmp_path / "keys"
    file.write_text(
        "\ufeff# comment\n\n  one  \ntwo # Ann\nthr#ee\ntwo keys\nfo#ur oops\n#five\n", "utf-8"
    )
    keys = ApiKeys(file=file)
    known = [
        k
        for k in ("one", "two", "thr#ee", "thr", "two keys", "fo#ur", "fo", "five", "")
        if keys.accept(k.encode())
    ]
    assert known == ["one", "two", "thr#ee"]
    assert logged == [f"api_keys_file: line {n} is not one key, it is left out" for n in (6, 7)]


def test_a_changed_file_is_read_again_within_a_second(tmp_path: Path) -> None:
    file, clock = tmp_path / "keys", Clock()
    file.write_text(GOOD)
    keys = ApiKeys(["fixed"], file, clock)
    replacement = tmp_path / "new"
    replacement.write_text(OTHER)
    os.replace(replacement, file)
    clock.now = 0.9
    assert keys.accept(GOOD.encode())
    clock.now = 1.0
    assert not keys.accept(GOOD.encode())
    assert keys.accept(OTHER.encode())
    assert keys.accept(b"fixed")


def test_a_file_that_vanishes_keeps_its_keys_and_is_reported_once(
    tmp_path: Path, logged: list[str]
) -> None:
    file, clock = tmp_path / "keys", Clock()
    file.write_text(GOOD)
    keys = ApiKeys(file=file, clock=clock)
    file.unlink()
    for clock.now in (1.0, 2.0, 3.0):
        assert keys.accept(GOOD.encode())
    assert len(logged) == 1
    assert str(tmp_path) not in logged[0]
    file.write_text(OTHER)
    clock.now = 4.0
    assert not keys.accept(GOOD.encode())
    file.unlink()
    clock.now = 5.0
    assert keys.accept(OTHER.encode())
    assert len(logged) == 2


def test_damage_keeps_the_keys_and_an_emptied_file_revokes_them(
    tmp_path: Path, logged: list[str]
) -> None:
    file, clock = tmp_path / "keys", Clock()
    file.write_text(GOOD)
    keys = ApiKeys(file=file, clock=clock)
    file.write_bytes(b"\xff\xfe\x00")
    clock.now = 1.0
    assert keys.accept(GOOD.encode())
    file.write_bytes(b"")
    clock.now = 2.0
    assert not keys.accept(GOOD.encode())
    assert keys.required
    assert len(logged) == 2


def test_a_file_missing_at_the_start_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="No such file") as stopped:
        keys_from(str(tmp_path / "none"), {})
    assert str(tmp_path) not in str(stopped.value)


def test_file_and_environment_add_up(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(GOOD)
    keys = keys_from(str(file), {"E2V_API_KEYS": f"{OTHER}, third"})
    assert all(keys.accept(key.encode()) for key in (GOOD, OTHER, "third"))
