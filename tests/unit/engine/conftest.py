"""Random checkpoints in FunASR's layout, FunASR's own answers to them, and test clips."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.checkpoints import SHAPES, model_conf, write_checkpoint
from engine import Engine

Samples = NDArray[np.float32]
Reference = Callable[[Samples], dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small models gain nothing from threads, and lose much where the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def funasr() -> Any:
    """FunASR's package. Its import of a hundred modules warns of old syntax and distutils."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import funasr
    return funasr


@pytest.fixture(scope="session")
def make_checkpoint(funasr: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`write_checkpoint` into a fresh folder, `audio` and `model` being single settings."""

    def make(
        shape: str = "tiny",
        audio: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        with_decoder: bool = False,
        **options: Any,
    ) -> Path:
        size = SHAPES[shape] if isinstance(shape, str) else shape
        conf = {**model_conf(size, with_decoder, **(audio or {})), **(model or {})}
        directory = tmp_path_factory.mktemp("checkpoint")
        return write_checkpoint(directory, size, conf=conf, **options)

    return make


@pytest.fixture(scope="session")
def reference(funasr: Any) -> Callable[[Path], Reference]:
    """FunASR's `AutoModel` on a directory, as a function of one clip."""

    def load(directory: Path) -> Reference:
        model = funasr.AutoModel(
            model=str(directory),
            device="cpu",
            ncpu=torch.get_num_threads(),
            disable_update=True,
            disable_pbar=True,
        )

        def generate(wave: Samples, **options: Any) -> dict[str, Any]:
            [result] = model.generate(wave, extract_embedding=True, **options)
            return result

        return generate

    return load


@pytest.fixture(scope="session")
def tiny(make_checkpoint: Callable[..., Path]) -> Path:
    """A tiny checkpoint; not to be changed."""
    return make_checkpoint()


@pytest.fixture(scope="session")
def tiny_engine(tiny: Path) -> Engine:
    """The tiny checkpoint in float32 on the CPU."""
    return Engine.load(tiny, device="cpu", dtype="float32")


@pytest.fixture
def torn(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may break."""
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.fixture
def counted_linears() -> Iterator[list[int]]:
    """Rows of every call of a linear layer, in order."""
    calls: list[int] = []

    def count(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(module, torch.nn.Linear):
            calls.append(inputs[0].shape[0])

    hook = torch.nn.modules.module.register_module_forward_hook(count)
    yield calls
    hook.remove()


def clip(samples: int, seed: int = 0) -> Samples:
    """Noise under a slow envelope: float32 [samples], of its own loudness for each seed."""
    rng = np.random.default_rng(seed)
    envelope = 1 + np.sin(np.arange(samples) / 1500 + seed)
    wave = rng.standard_normal(samples) * envelope * 10.0 ** rng.uniform(-3, 0)
    return wave.astype(np.float32)


@pytest.fixture(scope="session", name="clip")
def clip_fixture() -> Callable[..., Samples]:
    return clip
