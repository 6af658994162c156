"""Linear layers and convolutions whose weights are laid out once for the CPU's matrix units."""

import os
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# oneDNN keeps 1,024 kernels unless told otherwise before its first one; all sizes of a batch, with
# all threads and with one, are more
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")

Activation = Literal["none", "gelu"]

PACK_ROWS = 512
"""Rows for which the packed layout is chosen; others give the same numbers."""


class Linear(nn.Linear):
    """`nn.Linear` with its activation and residual, which a packed weight computes in one pass.

    Packed (`pack`, on a CPU) it calls oneDNN with the weight in the layout that its
    kernels want, where `nn.Linear` lays it out anew in every call.
    """

    def __init__(
        self, inputs: int, outputs: int, activation: Activation = "none", bias: bool = True
    ) -> None:
        super().__init__(inputs, outputs, bias)
        self.activation = activation
        self._packed: Tensor | None = None

    def pack(self) -> None:
        """Lay the weight out; the plain one is dropped, so this is for inference only."""
        if can_pack(self.weight):
            self._packed = _pack(self.weight.detach())
            self.weight = _dropped(self.weight)

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """activation(input W^T + b) [+ residual]; [..., inputs] → [..., outputs]."""
        if self._packed is not None:
            return _packed_linear(input, self._packed, self.bias, self.activation, residual)
        output = F.linear(input, self.weight, self.bias)
        if self.activation == "gelu":
            output = F.gelu(output)
        return output if residual is None else output + residual


def _packed_linear(
    input: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    activation: Activation,
    residual: Tensor | None,
) -> Tensor:
    result: Tensor
    pointwise = torch.ops.mkldnn._linear_pointwise
    if residual is None:
        result = pointwise(input, packed, bias, activation, [], "none")
    else:
        result = pointwise.binary(input, residual, packed, bias, "add")
    return result


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN takes this weight: on a CPU float32, and bfloat16 where it has instructions
    for it (AVX-512; without, it refuses the weight and `nn.Linear` computes)."""
    return (
        weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and (
            weight.dtype == torch.float32
            or (weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
        )
    )


class FrameConv(nn.Module):
    """A convolution without padding over frames in rows [T, C], as one matrix product.

    In this layout the window of a frame is one contiguous run, so nothing is transposed
    between the convolutions and the norms over the channels, which need the channels last.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel))
        nn.init.kaiming_uniform_(self.weight)
        self._packed: Tensor | None = None

    def pack(self) -> None:
        """See `Linear.pack`."""
        if can_pack(self.weight):
            self._packed = _pack(self._rows().detach())
            self.weight = _dropped(self.weight)

    def forward(self, frames: Tensor) -> Tensor:
        """[T, inputs] → [(T - kernel) // stride + 1, outputs]."""
        count, width = frames.shape
        outputs = (count - self.kernel) // self.stride + 1
        size, strides = (outputs, self.kernel * width), (self.stride * width, 1)
        windows = frames.contiguous().as_strided(size, strides)
        if self._packed is not None:
            return _packed_linear(windows, self._packed, None, "none", None)
        return windows @ self._rows().T

    def _rows(self) -> Tensor:
        return self.weight.permute(0, 2, 1).reshape(self.weight.shape[0], -1)


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACK_ROWS)
    return packed


def _dropped(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().new_empty(0), requires_grad=False)


def pack_layers(module: nn.Module) -> None:
    """Lay out every weight of `module` for inference."""
    for layer in list(module.modules()):
        if isinstance(layer, Linear | FrameConv):
            layer.pack()
