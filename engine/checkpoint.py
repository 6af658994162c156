"""A checkpoint directory in FunASR's layout, read without running anything in it."""

import json
import logging
import os
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any

import torch
from torch import Tensor

from engine.config import ModelConfig, from_funasr
from engine.encoder import Encoder
from engine.errors import ModelError

logger = logging.getLogger(__name__)

AUDIO = "modality_encoders.AUDIO."
IGNORED_PREFIXES = (AUDIO + "decoder.", "decoder.", "_ema.", "ema.", "teacher.", "criterion.")
"""Weights of the pre-training (decoder, teacher), which inference does not need."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a model is made of: shape, label tokens in file order, float32 weights by our names."""

    config: ModelConfig
    tokens: tuple[str, ...]
    weights: dict[str, Tensor]


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read `configuration.json`, `config.yaml`, `tokens.txt` and `model.pt`.

    Raises:
        ModelError: something is missing, of the wrong shape, or would need code to be run.
    """
    files = _files(directory)
    settings = _read_yaml(files["config"])
    if settings.get("model") != "Emotion2vec":
        kind = short_repr(settings.get("model"))
        raise ModelError(f"config.yaml: model {kind} is not Emotion2vec")
    model_conf = settings.get("model_conf")
    if not isinstance(model_conf, Mapping):
        raise ModelError("config.yaml: model_conf is missing")
    config = from_funasr(model_conf)
    scope_map = settings.get("scope_map")
    state = _read_pickle(files["weights"])
    tokens: tuple[str, ...] = ()
    if os.path.isfile(files["tokens"]):
        tokens = _read_tokens(files["tokens"])
    elif _source_key("proj.weight", _scope_pairs(scope_map), state) in state:
        raise ModelError(f"the model has a classifier, but no {files['tokens'].name} names labels")
    return Checkpoint(config, tokens, select_weights(state, scope_map, config, len(tokens)))


def file_names(directory: Path) -> dict[str, str]:
    """Names of `config`, `weights` and `tokens` in `directory`, as `configuration.json` has them.

    Raises:
        ModelError: `configuration.json` is broken, or a name leads out of the directory.
    """
    named: Mapping[str, Any] = {}
    configuration = directory / "configuration.json"
    if configuration.is_file():
        try:
            named = json.loads(configuration.read_text("utf-8")).get("file_path_metas", {})
        except (ValueError, AttributeError, RecursionError, OSError):
            raise ModelError("configuration.json is not a JSON object") from None
    if not isinstance(named, Mapping):
        raise ModelError("configuration.json: file_path_metas is not an object")
    tokenizer = named.get("tokenizer_conf")
    token_list = tokenizer.get("token_list") if isinstance(tokenizer, Mapping) else None
    return {
        "config": _inside(named.get("config", "config.yaml")),
        "weights": _inside(named.get("init_param", "model.pt")),
        "tokens": _inside(token_list or "tokens.txt"),
    }


def _files(directory: Path) -> dict[str, Path]:
    if not directory.is_dir():
        raise ModelError(f"model directory {str(directory)!r} does not exist")
    files = {kind: directory / name for kind, name in file_names(directory).items()}
    for kind in ("config", "weights"):
        if not os.path.isfile(files[kind]):
            raise ModelError(f"model directory {str(directory)!r} has no {files[kind].name}")
    return files


def _inside(name: object) -> str:
    if not isinstance(name, str):
        raise ModelError("configuration.json: a name in file_path_metas is not text")
    # the hubs' caches are links to blobs, so the name is checked, not what it points to
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ModelError(f"configuration.json: {name!r} lies outside the model directory")
    return name


def _read_yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        settings = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, ValueError, TypeError, LookupError, RecursionError, OSError):
        # a scalar that its tag does not fit (a date of month 99) escapes as a plain error
        raise ModelError(f"{path.name} is not plain YAML") from None
    if not isinstance(settings, Mapping):
        raise ModelError(f"{path.name} is not a mapping")
    return settings


def _read_tokens(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (UnicodeDecodeError, OSError):
        raise ModelError(f"{path.name} is not UTF-8 text") from None
    tokens = tuple(line.rstrip() for line in lines)
    if not tokens or len(set(tokens)) != len(tokens) or "" in tokens:
        raise ModelError(f"{path.name} must hold one label a line, each once")
    return tokens


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        state = _load(path, mmap=True)
    except ModelError:
        # an old-style pickle cannot be memory-mapped; anything else fails again
        state = _load(path, mmap=False)
    for nested in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, Mapping) and nested in state:
            state = state[nested]
    if not isinstance(state, Mapping):
        raise ModelError(f"{path.name} holds no table of weights")
    return {key: value for key, value in state.items() if _is_weight(key, value)}


def _load(path: Path, mmap: bool) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError:
        raise ModelError(
            f"{path.name} is damaged or holds more than tensors (code or objects), "
            "and was not opened"
        ) from None
    except Exception:
        # a damaged file surfaces as whatever its bytes happen to hit: KeyError, struct.error...
        raise ModelError(f"{path.name} is damaged or not a PyTorch file") from None


def _is_weight(key: object, value: object) -> bool:
    return (
        isinstance(key, str)
        and isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.is_floating_point()
    )


def select_weights(
    state: Mapping[str, Tensor], scope_map: object, config: ModelConfig, labels: int
) -> dict[str, Tensor]:
    """Pick and rename what the encoder needs; float32.

    Raises:
        ModelError: missing keys and wrong shapes, all of them in one line.
    """
    with torch.device("meta"):
        wanted = {name: p.shape for name, p in Encoder(config, labels).named_parameters()}
    pairs = _scope_pairs(scope_map)
    weights: dict[str, Tensor] = {}
    used, faults = set(), []
    for name, shape in wanted.items():
        if 0 in shape:
            # the reference has no parameter at all where there are no extra tokens
            weights[name] = torch.zeros(shape)
            continue
        reference = reference_key(name, config)
        source = _source_key(reference, pairs, state)
        if source not in state:
            faults.append(f"{reference} is missing")
        elif state[source].shape != shape:
            faults.append(f"{reference} is {_shape(state[source].shape)}, not {_shape(shape)}")
        else:
            weights[name] = state[source].detach().float()
        used.add(source)
    if faults:
        raise ModelError("weights do not fit the configuration: " + "; ".join(sorted(faults)))
    _warn_unexpected(set(state) - used, pairs)
    return weights


def _shape(shape: Sequence[int]) -> str:
    return "×".join(str(size) for size in shape) or "a scalar"


def _scope_pairs(scope_map: object) -> list[tuple[str, str]]:
    if isinstance(scope_map, str):
        scope_map = scope_map.split(",")
    listed = [] if scope_map is None else scope_map
    if (
        not isinstance(listed, list)
        or len(listed) % 2
        or not all(isinstance(name, str | None) for name in listed)
    ):
        raise ModelError("config.yaml: scope_map must hold pairs of prefixes")
    # the reference adds this pair itself; YAML may give none as text or as null
    names = ["" if str(name).lower() == "none" else name for name in [*listed, "module.", "none"]]
    return list(zip(names[0::2], names[1::2], strict=True))


def _source_key(key: str, pairs: Sequence[tuple[str, str]], state: Mapping[str, Tensor]) -> str:
    found = key
    for source, target in pairs:
        mapped = source + key[len(target) :]
        if key.startswith(target) and mapped in state:
            found = mapped
    return found


def _warn_unexpected(keys: set[str], pairs: Sequence[tuple[str, str]]) -> None:
    def ignored(key: str) -> bool:
        plain = [key, *(t + key[len(s) :] for s, t in pairs if s and key.startswith(s))]
        return any(name.startswith(IGNORED_PREFIXES) for name in plain)

    rest = sorted(key for key in keys if not ignored(key))
    if rest:
        logger.warning("%d unexpected weights were left out, first %s", len(rest), rest[0])


def reference_key(name: str, config: ModelConfig) -> str:
    """The reference's name of our parameter `name`."""
    for pattern, target in _RENAMES:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(target)
    if match := re.fullmatch(r"positional\.(\d+)\.(\w+)", name):
        number = int(match[1]) + 1
        inner = f"1.{number}" if config.positional_pre_norm else f"{number}"
        return f"{AUDIO}relative_positional_encoder.{inner}.0.{match[2]}"
    if match := re.fullmatch(r"blocks\.(\d+)\.(\w+)\.(\w+)", name):
        layer = int(match[1])
        late = layer >= config.prenet_depth
        prefix = f"blocks.{layer - config.prenet_depth}" if late else _PRENET + str(layer)
        return f"{prefix}.{_BLOCK_PARTS[match[2]]}.{match[3]}"
    raise KeyError(name)


_PRENET = AUDIO + "context_encoder.blocks."
_BLOCK_PARTS = {
    "qkv": "attn.qkv",
    "out": "attn.proj",
    "norm1": "norm1",
    "norm2": "norm2",
    "fc1": "mlp.fc1",
    "fc2": "mlp.fc2",
}
_RENAMES = (
    (r"convs\.(\d+)\.weight", AUDIO + r"local_encoder.conv_layers.\1.0.weight"),
    (r"conv_norms\.(\d+)\.(\w+)", AUDIO + r"local_encoder.conv_layers.\1.2.1.\2"),
    (r"feature_norm\.(\w+)", AUDIO + r"project_features.1.\1"),
    (r"feature_proj\.(\w+)", AUDIO + r"project_features.2.\1"),
    (r"positional_norm\.(\w+)", AUDIO + r"relative_positional_encoder.0.\1"),
    (r"(extra_tokens|alibi_scale)", AUDIO + r"\1"),
    (r"context_norm\.(\w+)", AUDIO + r"context_encoder.norm.\1"),
    (r"final_norm\.(\w+)", r"norm.\1"),
    (r"proj\.(\w+)", r"proj.\1"),
)
