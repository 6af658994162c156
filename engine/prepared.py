"""A prepared model: `model.json` (shape, labels, origin) beside `model.safetensors`.

Made once from a checkpoint; loaded by memory map, without pickle, YAML or funasr.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from engine.checkpoint import Checkpoint
from engine.config import ModelConfig
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
    """Write both files; the JSON last, so that a broken write is never taken for a model."""
    directory.mkdir(parents=True, exist_ok=True)
    checkpoint = prepared.checkpoint
    weights = {name: tensor.contiguous() for name, tensor in checkpoint.weights.items()}
    (directory / JSON_NAME).unlink(missing_ok=True)
    save_file(weights, directory / WEIGHTS_NAME)
    values: dict[str, Any] = {
        "format": FORMAT,
        "name": prepared.name,
        "revision": prepared.revision,
        "labels": list(checkpoint.tokens),
        "config": checkpoint.config.to_json(),
    }
    text = json.dumps(values, ensure_ascii=False, indent=1)
    (directory / JSON_NAME).write_text(text + "\n", "utf-8")


def read_prepared(directory: Path) -> Prepared:
    """Read what `write_prepared` wrote; the weights stay memory-mapped."""
    try:
        values = json.loads((directory / JSON_NAME).read_text("utf-8"))
        if values["format"] != FORMAT:
            raise ModelError(
                f"{JSON_NAME}: format {values['format']!r} is not {FORMAT}; prepare the model again"
            )
        checkpoint = Checkpoint(
            ModelConfig.from_json(values["config"]),
            tuple(values["labels"]),
            load_file(directory / WEIGHTS_NAME),
        )
    except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        kind = type(error).__name__
        raise ModelError(f"the prepared model {str(directory)!r} is damaged ({kind})") from None
    return Prepared(checkpoint, values["name"], values["revision"])
