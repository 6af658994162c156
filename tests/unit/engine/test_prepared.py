"""The prepared form: written whole or not at all, read by memory map, damage named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import Engine, ModelError
from engine.checkpoint import Checkpoint, read_checkpoint
from engine.hub import prepare
from engine.prepared import (
    JSON_NAME,
    WEIGHTS_NAME,
    Prepared,
    is_prepared,
    read_prepared,
    write_prepared,
)


@pytest.fixture
def prepared(tiny: Path, tmp_path: Path) -> Path:
    """The tiny checkpoint, prepared, in a folder that a test may break."""
    write_prepared(tmp_path / "prepared", Prepared(read_checkpoint(tiny), "org/name", "abc"))
    return tmp_path / "prepared"


def damaged(directory: Path, message: str = "is damaged") -> None:
    with pytest.raises(ModelError, match=message) as caught:
        Engine.load(directory, device="cpu", dtype="float32")
    assert "\n" not in str(caught.value)


def test_round_trip_is_exact(tiny: Path, prepared: Path, clip: Any) -> None:
    before, after = read_checkpoint(tiny), read_prepared(prepared)
    assert (after.name, after.revision) == ("org/name", "abc")
    assert (after.checkpoint.config, after.checkpoint.tokens) == (before.config, before.tokens)
    assert after.checkpoint.weights.keys() == before.weights.keys()
    for name, tensor in after.checkpoint.weights.items():
        assert torch.equal(tensor, before.weights[name])
    engines = [Engine.load(path, device="cpu", dtype="float32") for path in (tiny, prepared)]
    first, second = (engine.infer([clip(9_000)])[0] for engine in engines)
    assert np.array_equal(first.frame_logits, second.frame_logits)


@pytest.mark.parametrize(
    "options",
    [
        {"audio": {"num_extra_tokens": 0}},
        {"audio": {"use_alibi_encoder": False}},
        {"model": {"norm_affine": False}},
        {"model": {"layer_norm_first": True}},
    ],
)
def test_round_trip_of_other_shapes(
    options: dict[str, Any], make_checkpoint: Any, tmp_path: Path, clip: Any
) -> None:
    directory = make_checkpoint(**options)
    prepare(str(directory), tmp_path)
    engines = [Engine.load(path, device="cpu", dtype="float32") for path in (directory, tmp_path)]
    first, second = (engine.infer([clip(5_000)])[0] for engine in engines)
    assert np.array_equal(first.embedding, second.embedding)


def test_only_two_plain_files_are_left(prepared: Path) -> None:
    assert sorted(path.name for path in prepared.iterdir()) == [JSON_NAME, WEIGHTS_NAME]
    assert not any(path.is_symlink() for path in prepared.iterdir())
    values = json.loads((prepared / JSON_NAME).read_text("utf-8"))
    assert (values["name"], values["revision"]) == ("org/name", "abc")


def test_preparing_again_replaces_the_files_under_a_reader(
    prepared: Path, make_checkpoint: Any
) -> None:
    reader = read_prepared(prepared)
    before = {name: tensor.clone() for name, tensor in reader.checkpoint.weights.items()}
    other = read_checkpoint(make_checkpoint(seed=1))
    write_prepared(prepared, Prepared(other, "org/name", "def"))
    # a mapped file that is written over would change under the reader
    assert all(torch.equal(before[n], t) for n, t in reader.checkpoint.weights.items())
    assert read_prepared(prepared).revision == "def"


def test_a_failed_write_leaves_the_old_model(
    prepared: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.prepared.save_file", full)
    with pytest.raises(ModelError, match="cannot be written to .*: No space left on device"):
        write_prepared(prepared, Prepared(read_checkpoint(tiny), "x", "y"))
    monkeypatch.undo()
    assert read_prepared(prepared).name == "org/name"
    assert len(list(prepared.iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_named(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot be written to .*file"):
        prepare(str(tiny), tmp_path / "file" / "model")


def test_weights_that_share_memory_are_prepared(tiny: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(tiny)
    names = ["blocks.0.fc1.weight", "blocks.1.fc1.weight", "blocks.0.qkv.bias"]
    buffer = torch.randn(2, 256, 64)
    shared = {names[0]: buffer[0], names[1]: buffer[1], names[2]: buffer[0].flatten()[:192]}
    weights = {**checkpoint.weights, **shared}
    write_prepared(
        tmp_path, Prepared(Checkpoint(checkpoint.config, checkpoint.tokens, weights), "a", "b")
    )
    loaded = read_prepared(tmp_path).checkpoint.weights
    assert all(torch.equal(loaded[name], shared[name]) for name in names)


def test_weights_are_mapped_not_read(prepared: Path) -> None:
    weights = read_prepared(prepared).checkpoint.weights
    ranges = mapped_ranges(prepared / WEIGHTS_NAME)
    for tensor in weights.values():
        assert any(first <= tensor.data_ptr() < last for first, last in ranges)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": "abc"},
        {"labels": [1, 2, 3, 4, 5, 6, 7, 8, 9]},
        {"labels": None},
        {"name": None},
        {"revision": 5},
        {"config": None},
        {"config": []},
        {"config": {"convs": [[32, 10, 5]]}},
    ],
)
def test_json_of_other_kinds_is_damage(prepared: Path, change: dict[str, Any]) -> None:
    edit_json(prepared, **change)
    damaged(prepared)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xff", b'{"format": 1}', b"[" * 100_000]
)
def test_broken_json_is_damage(prepared: Path, content: bytes) -> None:
    (prepared / JSON_NAME).write_bytes(content)
    damaged(prepared)


def test_another_format_says_what_to_do(prepared: Path) -> None:
    edit_json(prepared, format=99)
    damaged(prepared, "format 99 is not 1; prepare the model again")


@pytest.mark.parametrize("kept", [0.0, 0.0001, 0.01, 0.5, 0.999])
def test_truncated_weights_are_damage(prepared: Path, kept: float) -> None:
    content = (prepared / WEIGHTS_NAME).read_bytes()
    (prepared / WEIGHTS_NAME).write_bytes(content[: int(len(content) * kept)])
    damaged(prepared)


@pytest.mark.parametrize(
    "change", [{"embed_dim": 128}, {"depth": 3}, {"extra_tokens": 9}, {"alibi_heads": 0}]
)
def test_files_that_do_not_belong_together_are_refused(
    prepared: Path, change: dict[str, Any]
) -> None:
    values = json.loads((prepared / JSON_NAME).read_text("utf-8"))
    edit_json(prepared, config={**values["config"], **change})
    damaged(prepared, "does not fit|is damaged")


def test_labels_must_fit_the_classifier(prepared: Path) -> None:
    edit_json(prepared, labels=["a", "b"])
    damaged(prepared, f"{WEIGHTS_NAME} does not fit {JSON_NAME}")


def test_half_a_model_is_no_prepared_model(prepared: Path) -> None:
    (prepared / JSON_NAME).unlink()
    assert not is_prepared(prepared)
    damaged(prepared, "has no config.yaml")


def test_preparing_a_directory_needs_an_output(tiny: Path) -> None:
    with pytest.raises(ModelError, match="needs an output directory"):
        prepare(str(tiny))


def edit_json(directory: Path, **changes: Any) -> None:
    values = json.loads((directory / JSON_NAME).read_text("utf-8"))
    (directory / JSON_NAME).write_text(json.dumps({**values, **changes}), "utf-8")


def mapped_ranges(file: Path) -> list[tuple[int, int]]:
    """Addresses at which this process has `file` mapped."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc here")
    lines = [line.split() for line in maps.read_text().splitlines() if line.endswith(str(file))]
    spans = [line[0].split("-") for line in lines]
    return [(int(first, 16), int(last, 16)) for first, last in spans]
