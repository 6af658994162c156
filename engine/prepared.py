"""A prepared model: `model.json` (shape, labels, origin) beside `model.safetensors`.

Made once from a checkpoint; loaded by memory map, without pickle, YAML or funasr.
"""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.checkpoint import Checkpoint
from engine.config import ModelConfig
from engine.encoder import Encoder
from engine.errors import ModelError

FORMAT = 1
JSON_NAME = "model.json"
WEIGHTS_NAME = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A loadable model and where it came from."""

    checkpoint: Checkpoint
    name: str
    revision: str


def is_prepared(directory: Path) -> bool:
    """Whether `directory` holds a prepared model."""
    return (directory / JSON_NAME).is_file() and (directory / WEIGHTS_NAME).is_file()


def write_prepared(directory: Path, prepared: Prepared) -> None:
    """Write both files, whole or not at all, the JSON last.

    A server that has the old weights mapped keeps them, and of several processes that prepare
    the same model at once each one finds a complete model afterwards.

    Raises:
        ModelError: the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".prepare-") as scratch:
            _write_files(Path(scratch), prepared)
            for name in (WEIGHTS_NAME, JSON_NAME):
                os.replace(Path(scratch) / name, directory / name)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ModelError(
            f"the prepared model cannot be written to {str(directory)!r}: {reason}"
        ) from None


def _write_files(directory: Path, prepared: Prepared) -> None:
    checkpoint = prepared.checkpoint
    save_file(_separate(checkpoint.weights), directory / WEIGHTS_NAME)
    values: dict[str, Any] = {
        "format": FORMAT,
        "name": prepared.name,
        "revision": prepared.revision,
        "labels": list(checkpoint.tokens),
        "config": checkpoint.config.to_json(),
    }
    text = json.dumps(values, ensure_ascii=False, indent=1)
    (directory / JSON_NAME).write_text(text + "\n", "utf-8")


def _separate(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Safetensors refuses tensors that share memory, as views of one pickled buffer do."""
    seen: set[int] = set()
    result = {}
    for name, tensor in weights.items():
        memory = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if memory in seen else tensor.contiguous()
        seen.add(memory)
    return result


def read_prepared(directory: Path) -> Prepared:
    """Read what `write_prepared` wrote; the weights stay memory-mapped.

    Raises:
        ModelError: a file is damaged, or the two do not belong together.
    """
    try:
        values = json.loads((directory / JSON_NAME).read_text("utf-8"))
        if values["format"] != FORMAT:
            raise ModelError(
                f"{JSON_NAME}: format {values['format']!r} is not {FORMAT}; prepare the model again"
            )
        config = ModelConfig.from_json(values["config"])
        labels, name, revision = values["labels"], values["name"], values["revision"]
        texts = (*labels, name, revision)
        if not isinstance(labels, list) or not all(isinstance(text, str) for text in texts):
            raise TypeError("text expected")
        weights = load_file(directory / WEIGHTS_NAME)
        _check_fit(weights, config, len(labels))
    except (
        *(ValueError, KeyError, TypeError, AttributeError, RecursionError),
        *(OSError, RuntimeError, SafetensorError),
    ) as error:
        kind = type(error).__name__
        raise ModelError(f"the prepared model {str(directory)!r} is damaged ({kind})") from None
    return Prepared(Checkpoint(config, tuple(labels), weights), name, revision)


def _check_fit(weights: dict[str, Tensor], config: ModelConfig, labels: int) -> None:
    with torch.device("meta"):
        wanted = {name: p.shape for name, p in Encoder(config, labels).named_parameters()}
    if {name: tensor.shape for name, tensor in weights.items()} != wanted:
        raise ModelError(f"{WEIGHTS_NAME} does not fit {JSON_NAME}; prepare the model again")
