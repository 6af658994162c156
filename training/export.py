"""Write a trained model as a FunASR checkpoint directory and as the engine's prepared model."""

import hashlib
import json
from pathlib import Path

import torch
import yaml

from engine.checkpoint import read_checkpoint
from engine.prepared import Prepared, write_prepared
from training.corpus import LABELS
from training.model import TrainedModel, model_conf
from training.recipe import Recipe

MODEL_NAME = "emotion2vec_mini"


def write_checkpoint(directory: Path, model: TrainedModel, recipe: Recipe) -> None:
    """Write `configuration.json`, `config.yaml`, `model.pt` and `tokens.txt`."""
    directory.mkdir(parents=True, exist_ok=True)
    names = {
        "init_param": "model.pt",
        "config": "config.yaml",
        "tokenizer_conf": {"token_list": "tokens.txt"},
    }
    configuration = {
        "framework": "pytorch",
        "task": "emotion-recognition",
        "model": {"type": "funasr"},
        "file_path_metas": names,
    }
    text = json.dumps(configuration, indent=2)
    (directory / "configuration.json").write_text(text + "\n", "utf-8")
    (directory / "tokens.txt").write_text("\n".join(LABELS) + "\n", "utf-8")
    (directory / "config.yaml").write_text(_config_yaml(recipe), "utf-8")
    weights = {key: value.float() for key, value in model.emotion2vec.state_dict().items()}
    torch.save({"model": weights}, directory / "model.pt")


def write_bundled(directory: Path, checkpoint: Path) -> None:
    """Turn a checkpoint directory into the prepared model that ships in the package."""
    revision = hashlib.sha256((checkpoint / "model.pt").read_bytes()).hexdigest()[:12]
    write_prepared(directory, Prepared(read_checkpoint(checkpoint), MODEL_NAME, revision))


def _config_yaml(recipe: Recipe) -> str:
    config = {
        "model": "Emotion2vec",
        "model_conf": model_conf(recipe.shape, recipe.dropout),
        "tokenizer": "CharTokenizer",
        "tokenizer_conf": {"unk_symbol": "<unk>", "split_with_space": True},
    }
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
