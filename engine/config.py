"""Shape of an Emotion2Vec encoder, read from FunASR's `config.yaml` without evaluating it."""

import ast
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from reprlib import repr as short_repr
from typing import Any

from engine.errors import ModelError

ConvSpec = tuple[tuple[int, int, int], ...]
MAX_CONVS = 64
MAX_LAYERS = 1024
MAX_WIDTH = 65_536


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything that decides what the encoder computes.

    Attributes:
        convs: (channels, kernel, stride) of each feature convolution.
        positional_kernel: frames seen by one positional convolution.
        alibi_heads: heads that get the distance bias; 0 without ALiBi.
        scale_layers, scale_heads: shape of the learned ALiBi scale (1: shared).
    """

    convs: ConvSpec
    embed_dim: int
    heads: int
    prenet_depth: int
    depth: int
    mlp_ratio: float
    norm_eps: float
    norm_affine: bool
    layer_norm_first: bool
    normalize: bool
    positional_depth: int
    positional_kernel: int
    positional_groups: int
    positional_pre_norm: bool
    alibi_heads: int
    scale_layers: int
    scale_heads: int
    extra_tokens: int

    @property
    def layers(self) -> int:
        """Transformer blocks in all."""
        return self.prenet_depth + self.depth

    @property
    def hop(self) -> int:
        """Samples between two frames."""
        hop = 1
        for _, _, stride in self.convs:
            hop *= stride
        return hop

    @property
    def receptive_field(self) -> int:
        """Samples that one frame sees: the shortest clip that gives a frame."""
        field = 1
        for _, kernel, stride in reversed(self.convs):
            field = (field - 1) * stride + kernel
        return field

    @property
    def gap(self) -> int:
        """Zero frames that keep two clips apart in the positional convolutions."""
        return self.positional_kernel // 2

    def frames(self, samples: int) -> int:
        """Frames that a clip of `samples` gives (0 below the receptive field)."""
        if samples < self.receptive_field:
            return 0
        return (samples - self.receptive_field) // self.hop + 1

    def to_json(self) -> dict[str, Any]:
        """Plain dict for the prepared model's JSON file."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "ModelConfig":
        """Inverse of `to_json`.

        Raises:
            TypeError, ValueError: a field is missing, unknown or of the wrong kind.
        """
        config = cls(**{**values, "convs": tuple(tuple(layer) for layer in values["convs"])})
        for field in fields(cls):
            value = getattr(config, field.name)
            kinds = (int, float) if field.type is float else (field.type,)
            if field.name != "convs" and type(value) not in kinds:
                raise TypeError(field.name)
        if not config.convs or not all(_is_conv(layer) for layer in config.convs):
            raise ValueError("convs")
        return config


def from_funasr(model_conf: Mapping[str, Any]) -> ModelConfig:
    """Build the configuration from `model_conf`; refuses by name what is not computed here."""
    audio = _section(model_conf, "modalities", "audio")
    _refuse_unsupported(audio)
    alibi = _boolean(audio, "use_alibi_encoder")
    depth = _integer(model_conf, "depth", most=MAX_LAYERS)
    prenet_depth = _integer(audio, "prenet_depth", most=MAX_LAYERS)
    positional_depth = _integer(audio, "conv_pos_depth", least=1, most=MAX_LAYERS)
    per_layer = _boolean(audio, "learned_alibi_scale_per_layer", False)
    per_head = _boolean(audio, "learned_alibi_scale_per_head", False)
    alibi_heads = _integer(audio, "num_alibi_heads", least=1) if alibi else 0
    if per_layer and _integer(audio, "model_depth") != depth:
        raise ModelError("config.yaml: model_depth and depth differ, the ALiBi scales cannot fit")
    config = ModelConfig(
        convs=parse_conv_spec(audio.get("feature_encoder_spec")),
        embed_dim=_integer(model_conf, "embed_dim", least=1),
        heads=_integer(model_conf, "num_heads", least=1),
        prenet_depth=prenet_depth,
        depth=depth,
        mlp_ratio=_number(model_conf, "mlp_ratio"),
        norm_eps=_number(model_conf, "norm_eps"),
        norm_affine=_boolean(model_conf, "norm_affine"),
        layer_norm_first=_boolean(model_conf, "layer_norm_first"),
        normalize=_boolean(model_conf, "normalize"),
        positional_depth=positional_depth,
        positional_kernel=max(3, _integer(audio, "conv_pos_width") // positional_depth),
        positional_groups=_integer(audio, "conv_pos_groups", least=1),
        positional_pre_norm=_boolean(audio, "conv_pos_pre_ln", False),
        alibi_heads=alibi_heads,
        scale_layers=prenet_depth + depth if per_layer else 1,
        scale_heads=alibi_heads if per_head else 1,
        extra_tokens=_integer(audio, "num_extra_tokens"),
    )
    _check_divisible(config)
    return config


def parse_conv_spec(text: object) -> ConvSpec:
    """Read `feature_encoder_spec`, Python text of tuples, lists, `+` and `*`, without running it.

    FunASR `eval`s this string, so a hostile one would be code; here anything but integer
    literals and those two operators is refused.
    """
    if not isinstance(text, str):
        raise ModelError("config.yaml: feature_encoder_spec is missing or not text")
    try:
        value = _literal(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ModelError(
            "config.yaml: feature_encoder_spec must be a list of (channels, kernel, stride) "
            "tuples joined by + and *"
        ) from None
    layers = value if isinstance(value, list) and len(value) <= MAX_CONVS else None
    if not layers or not all(_is_conv(layer) for layer in layers):
        raise ModelError(
            f"config.yaml: feature_encoder_spec must list 1 to {MAX_CONVS} "
            "(channels, kernel, stride) of 1 or more"
        )
    return tuple(layers)


def _is_conv(layer: object) -> bool:
    return (
        isinstance(layer, tuple)
        and len(layer) == 3
        and all(type(value) is int and 1 <= value <= MAX_WIDTH for value in layer)
    )


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(_literal(item) for item in node.elts)
    if isinstance(node, ast.List):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.BinOp):
        left, right = _literal(node.left), _literal(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Mult):
            return _repeat(left, right)
    raise ValueError("not a literal")


def _repeat(left: Any, right: Any) -> Any:
    # a factor of ten digits, or six small ones in a row, is a memory bomb and no network
    count, items = (left, right) if isinstance(left, int) else (right, left)
    if type(count) is not int or not isinstance(items, list):
        raise ValueError("not a repetition")
    if count < 0 or count * len(items) > MAX_CONVS:
        raise ValueError("too many layers")
    return items * count


def _refuse_unsupported(audio: Mapping[str, Any]) -> None:
    mode = audio.get("extractor_mode")
    if mode != "layer_norm":
        # "default" normalises over the whole row, which would mix clips of one batch
        raise ModelError(
            f"config.yaml: extractor_mode {short_repr(mode)} is not supported, only layer_norm"
        )
    if _boolean(audio, "learned_alibi", False):
        raise ModelError("config.yaml: learned_alibi is not supported")


def _check_divisible(config: ModelConfig) -> None:
    for name, divisor in (
        ("num_heads", config.heads),
        ("conv_pos_groups", config.positional_groups),
    ):
        if divisor < 1 or config.embed_dim % divisor:
            raise ModelError(
                f"config.yaml: embed_dim {config.embed_dim} is not a multiple of {name} {divisor}"
            )
    if config.alibi_heads > config.heads:
        raise ModelError("config.yaml: num_alibi_heads is larger than num_heads")


def _section(values: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    current: Any = values
    for name in names:
        current = current.get(name) if isinstance(current, Mapping) else None
    if not isinstance(current, Mapping):
        raise ModelError(f"config.yaml: section model_conf.{'.'.join(names)} is missing")
    return current


def _number(values: Mapping[str, Any], name: str) -> float:
    value = values.get(name)
    try:
        # YAML 1.1 reads `1e-05` as text, so a number may arrive as a string
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        # the short form: an alias bomb would print as gigabytes
        raise ModelError(f"config.yaml: {name} must be a number, not {short_repr(value)}")
    return number


def _integer(values: Mapping[str, Any], name: str, least: int = 0, most: int = MAX_WIDTH) -> int:
    number = _number(values, name)
    if number != int(number) or not least <= number <= most:
        raise ModelError(
            f"config.yaml: {name} must be a whole number from {least} to {most}, "
            f"not {short_repr(values.get(name))}"
        )
    return int(number)


def _boolean(values: Mapping[str, Any], name: str, default: bool | None = None) -> bool:
    value = values.get(name, default)
    if not isinstance(value, bool):
        raise ModelError(f"config.yaml: {name} must be true or false, not {short_repr(value)}")
    return value
