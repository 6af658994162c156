"""A checkpoint directory is read without running anything in it; faults are named in a line."""

import contextlib
import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Engine, ModelError
from engine.checkpoint import read_checkpoint

AUDIO = "modality_encoders.AUDIO."


class Touch:
    """Unpickling it creates a file: code in a checkpoint."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def refused(directory: Path, message: str) -> str:
    with pytest.raises(ModelError, match=message) as caught:
        read_checkpoint(directory)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit_weights(directory: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    state = torch.load(directory / "model.pt")["model"]
    change(state)
    torch.save({"model": state}, directory / "model.pt")


def edit_settings(directory: Path, old: str, new: str) -> None:
    text = (directory / "config.yaml").read_text("utf-8")
    assert old in text
    (directory / "config.yaml").write_text(text.replace(old, new), "utf-8")


def edit_names(directory: Path, **names: Any) -> None:
    path = directory / "configuration.json"
    values = json.loads(path.read_text("utf-8"))
    values["file_path_metas"].update(names)
    path.write_text(json.dumps(values), "utf-8")


def test_untouched_copy_is_read(torn: Path) -> None:
    checkpoint = read_checkpoint(torn)
    assert len(checkpoint.tokens) == 9
    assert all(tensor.dtype == torch.float32 for tensor in checkpoint.weights.values())


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_the_weights_does_not_run(torn: Path, zipped: bool) -> None:
    marker = torn / "ran"
    state = torch.load(torn / "model.pt")["model"]
    torch.save(
        {"model": state, "extra": Touch(marker)},
        torn / "model.pt",
        _use_new_zipfile_serialization=zipped,
    )
    refused(torn, r"^model.pt .*\(code or objects\), and was not opened$")
    assert not marker.exists()
    # and the file would have run it
    torch.load(torn / "model.pt", weights_only=False)
    assert marker.exists()


def test_code_in_a_bare_pickle_does_not_run(torn: Path) -> None:
    marker = torn / "ran"
    (torn / "model.pt").write_bytes(pickle.dumps({"model": Touch(marker)}))
    refused(torn, r"^model.pt (is damaged|holds more)")
    assert not marker.exists()


def test_code_in_the_specification_does_not_run(torn: Path) -> None:
    marker = torn / "ran"
    text = (torn / "config.yaml").read_text("utf-8")
    start = text.index("feature_encoder_spec:")
    end = text.index("\n", start)
    evil = f"feature_encoder_spec: \"[(open('{marker}', 'w').fileno(), 10, 5)]\""
    (torn / "config.yaml").write_text(text[:start] + evil + text[end:], "utf-8")
    refused(torn, "feature_encoder_spec must")
    assert not marker.exists()


def test_code_in_yaml_does_not_run(torn: Path) -> None:
    marker = torn / "ran"
    evil = f"\nextra: !!python/object/apply:os.mkdir ['{marker}']\n"
    with (torn / "config.yaml").open("a") as file:
        file.write(evil)
    refused(torn, "config.yaml is not plain YAML")
    assert not marker.exists()


def test_old_file_format_is_read(tiny: Path, torn: Path) -> None:
    state = torch.load(torn / "model.pt")
    torch.save(state, torn / "model.pt", _use_new_zipfile_serialization=False)
    expected, old = read_checkpoint(tiny), read_checkpoint(torn)
    assert all(torch.equal(expected.weights[name], old.weights[name]) for name in old.weights)


def test_missing_keys_and_wrong_shapes_are_named_together(torn: Path) -> None:
    def change(state: dict[str, Any]) -> None:
        del state["blocks.1.attn.qkv.weight"], state["proj.bias"]
        state["proj.weight"] = torch.zeros(7, 64)
        state[AUDIO + "alibi_scale"] = torch.tensor(1.0)

    edit_weights(torn, change)
    message = refused(torn, "weights do not fit the configuration")
    assert "blocks.1.attn.qkv.weight is missing" in message
    assert "proj.bias is missing" in message
    assert "proj.weight is 7×64, not 9×64" in message
    assert "alibi_scale is a scalar, not 1×1×4×1×1" in message


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(9, 64).to_sparse(),
        torch.zeros(9, 64, dtype=torch.complex64),
        [[0.0] * 64] * 9,
    ],
    ids=["sparse", "complex", "list"],
)
def test_weights_of_another_kind_count_as_missing(torn: Path, tensor: Any) -> None:
    edit_weights(torn, lambda state: state.update({"proj.weight": tensor}))
    refused(torn, "proj.weight is missing|model.pt is damaged")


def test_unexpected_keys_give_one_warning(torn: Path, caplog: pytest.LogCaptureFixture) -> None:
    edit_weights(torn, lambda state: state.update(aaa=torch.zeros(1), zzz=torch.zeros(1)))
    with caplog.at_level(logging.WARNING):
        read_checkpoint(torn)
    assert [r.getMessage() for r in caplog.records] == [
        "2 unexpected weights were left out, first aaa"
    ]


@pytest.mark.parametrize("prefix", ["", "d2v_model."])
def test_weights_of_the_training_are_left_out_silently(
    prefix: str, make_checkpoint: Any, caplog: pytest.LogCaptureFixture
) -> None:
    directory = make_checkpoint(with_decoder=True, scope_prefix=prefix)
    edit_weights(directory, lambda state: state.update({f"{prefix}_ema.x": torch.zeros(1)}))
    with caplog.at_level(logging.WARNING):
        checkpoint = read_checkpoint(directory)
    assert not caplog.records
    assert not any("decoder" in name for name in checkpoint.weights)


def test_data_parallel_prefix_is_known(torn: Path, tiny: Path) -> None:
    state = torch.load(torn / "model.pt")["model"]
    torch.save({f"module.{key}": value for key, value in state.items()}, torn / "model.pt")
    assert read_checkpoint(torn).weights.keys() == read_checkpoint(tiny).weights.keys()


@pytest.mark.parametrize("scope", ["3", "[a]", "[a, [b]]", "{a: b}"])
def test_broken_scope_map_is_refused(torn: Path, scope: str) -> None:
    with (torn / "config.yaml").open("a") as file:
        file.write(f"\nscope_map: {scope}\n")
    refused(torn, "scope_map must hold pairs")


@pytest.mark.parametrize("none", ["none", "None", "null"])
def test_scope_map_may_spell_none_in_three_ways(none: str, make_checkpoint: Any) -> None:
    directory = make_checkpoint(scope_prefix="d2v_model.")
    edit_settings(directory, "- none", f"- {none}")
    assert read_checkpoint(directory).tokens


@pytest.mark.parametrize("name", ["/etc/hostname", "../model.pt", "a/../../model.pt", "a/.."])
@pytest.mark.parametrize("key", ["init_param", "config", "tokenizer_conf"])
def test_names_outside_the_directory_are_refused(torn: Path, key: str, name: str) -> None:
    edit_names(torn, **{key: {"token_list": name} if key == "tokenizer_conf" else name})
    refused(torn, "lies outside the model directory")


@pytest.mark.parametrize("name", [5, None, ["model.pt"], {"a": "b"}])
def test_names_that_are_not_text_are_refused(torn: Path, name: Any) -> None:
    edit_names(torn, init_param=name)
    refused(torn, "is not text")


def test_other_names_and_folders_inside_are_read(torn: Path, tiny: Path) -> None:
    (torn / "weights").mkdir()
    (torn / "model.pt").rename(torn / "weights" / "best.pt")
    (torn / "config.yaml").rename(torn / "settings.yaml")
    (torn / "tokens.txt").rename(torn / "labels.txt")
    edit_names(
        torn,
        init_param="weights/best.pt",
        config="settings.yaml",
        tokenizer_conf={"token_list": "labels.txt"},
    )
    assert read_checkpoint(torn).tokens == read_checkpoint(tiny).tokens


def test_links_out_of_the_directory_are_followed(torn: Path, tiny: Path) -> None:
    # a hub's cache is made of them
    (torn / "model.pt").unlink()
    (torn / "model.pt").symlink_to(tiny / "model.pt")
    assert read_checkpoint(torn).tokens


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("configuration.json", b"{", "configuration.json is not a JSON object"),
        ("configuration.json", b"[1]", "configuration.json is not a JSON object"),
        ("configuration.json", b"\xff\xfe", "configuration.json is not a JSON object"),
        ("configuration.json", b"[" * 100_000, "configuration.json is not a JSON object"),
        ("configuration.json", b'{"file_path_metas": 3}', "file_path_metas is not an object"),
        ("config.yaml", b"a: [", "config.yaml is not plain YAML"),
        ("config.yaml", b"\xff\xfe\xfd", "config.yaml is not plain YAML"),
        ("config.yaml", b"[" * 20_000, "config.yaml is not plain YAML"),
        ("config.yaml", b"a: 2020-99-99", "config.yaml is not plain YAML"),
        ("config.yaml", b"- a\n", "config.yaml is not a mapping"),
        ("config.yaml", b"", "config.yaml is not a mapping"),
        ("config.yaml", b"model: Paraformer\n", "model 'Paraformer' is not Emotion2vec"),
        ("config.yaml", b"model: Emotion2vec\n", "model_conf is missing"),
        ("tokens.txt", b"\xff\xfe", "tokens.txt is not UTF-8"),
        ("tokens.txt", b"", "tokens.txt must hold one label a line"),
        ("tokens.txt", b"a\na\n", "tokens.txt must hold one label a line, each once"),
        ("tokens.txt", b"a\n\nb\n", "tokens.txt must hold one label a line"),
        ("tokens.txt", b"a\nb\n", "proj.bias is 9, not 2"),
        ("model.pt", b"", "model.pt is damaged"),
        ("model.pt", b"PK\x03\x04" + bytes(400), "model.pt is damaged"),
        ("model.pt", b"not a checkpoint at all", "model.pt is damaged"),
    ],
)
def test_broken_files_are_named(torn: Path, file: str, content: bytes, message: str) -> None:
    (torn / file).write_bytes(content)
    refused(torn, message)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kept", [0.001, 0.1, 0.5, 0.9, 0.9999])
def test_truncated_weights_are_named(torn: Path, kept: float, zipped: bool) -> None:
    state = torch.load(torn / "model.pt")
    torch.save(state, torn / "model.pt", _use_new_zipfile_serialization=zipped)
    content = (torn / "model.pt").read_bytes()
    (torn / "model.pt").write_bytes(content[: int(len(content) * kept)])
    refused(torn, "model.pt is damaged")


def test_every_damage_of_the_pickle_is_a_model_error(torn: Path) -> None:
    content = (torn / "model.pt").read_bytes()
    start = content.index(b"data.pkl") + 64
    for place in range(start, start + 1_200, 13):
        broken = bytearray(content)
        broken[place] ^= 0x55
        (torn / "model.pt").write_bytes(broken)
        # a flipped bit may also change nothing that matters
        with contextlib.suppress(ModelError):
            read_checkpoint(torn)


@pytest.mark.parametrize("content", [3, [torch.zeros(1)], torch.zeros(3), {"model": 3}])
def test_weights_without_a_table_are_refused(torn: Path, content: Any) -> None:
    torch.save(content, torn / "model.pt")
    refused(torn, "model.pt holds no table of weights")


@pytest.mark.parametrize("file", ["config.yaml", "model.pt"])
def test_absent_files_are_named(torn: Path, file: str) -> None:
    (torn / file).unlink()
    refused(torn, f"has no {file}")


@pytest.mark.parametrize("named", [{}, {"token_list": "labels.txt"}])
def test_a_classifier_needs_labels(torn: Path, named: dict[str, str]) -> None:
    (torn / "tokens.txt").unlink()
    edit_names(torn, tokenizer_conf=named)
    refused(torn, f"no {named.get('token_list', 'tokens.txt')} names labels")


def test_labels_may_be_absent_without_a_classifier(torn: Path) -> None:
    # FunASR takes such a model as one for embeddings, even if its configuration names the file
    (torn / "tokens.txt").unlink()
    edit_weights(torn, lambda state: [state.pop("proj.weight"), state.pop("proj.bias")])
    checkpoint = read_checkpoint(torn)
    assert checkpoint.tokens == ()
    assert "proj.weight" not in checkpoint.weights


def test_a_folder_in_place_of_a_file_is_named(torn: Path) -> None:
    (torn / "model.pt").unlink()
    (torn / "model.pt").mkdir()
    refused(torn, "has no model.pt")


@pytest.mark.parametrize("name", ["no/such/folder", "absent"])
def test_missing_directory_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="does not exist") as caught:
        Engine.load(tmp_path / name)
    assert name in str(caught.value)


def test_windows_line_ends_in_tokens(torn: Path, tiny: Path) -> None:
    text = (torn / "tokens.txt").read_bytes()
    (torn / "tokens.txt").write_bytes(text.replace(b"\n", b"\r\n"))
    assert read_checkpoint(torn).tokens == read_checkpoint(tiny).tokens
