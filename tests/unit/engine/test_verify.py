"""`verify` compares our engine with FunASR on one checkpoint directory."""

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import ModelError
from engine.hub import prepare
from engine.prepared import is_prepared
from engine.verify import CLIP_SECONDS, TOLERANCE, speech_like, verify


def test_equal_models_are_reported(tiny: Path, funasr: Any, capsys: Any) -> None:
    before = logging.getLogger().manager.disable, list(logging.getLogger().handlers)
    report = verify(tiny)
    assert report.clip_seconds == CLIP_SECONDS
    assert len(report.clip_seconds) == 3
    assert 0 < report.features <= TOLERANCE
    assert 0 < report.scores <= 1e-5
    assert "3 clips agree with funasr" in str(report)
    # FunASR's own talk stays inside, and its logging set-up as well
    assert capsys.readouterr() == ("", "")
    assert (logging.getLogger().manager.disable, logging.getLogger().handlers) == before
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    "options",
    [
        {"scope_prefix": "d2v_model.", "with_decoder": True},
        {"tokens": ("a/b", "unuse_0", "<unk>")},
        {"audio": {"num_extra_tokens": 0}},
    ],
)
def test_other_layouts_are_verified(options: dict[str, Any], make_checkpoint: Any) -> None:
    assert verify(make_checkpoint(**options)).features <= TOLERANCE


def test_relative_and_linked_directories(
    tiny: Path, funasr: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a hub's snapshot is a folder of links
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in tiny.iterdir():
        (snapshot / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    assert verify(Path("snapshot")).features <= TOLERANCE


def test_a_difference_is_refused(tiny: Path, funasr: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.encoder import Encoder

    original = Encoder._positions
    monkeypatch.setattr(Encoder, "_positions", lambda *args: original(*args) * 1.01)
    with pytest.raises(ModelError, match="differs from funasr by .* in features and .* 1e-04"):
        verify(tiny)


def test_weights_that_are_not_finite_are_refused(torn: Path, funasr: Any) -> None:
    state = torch.load(torn / "model.pt")
    state["model"]["proj.weight"][0, 0] = torch.nan
    torch.save(state, torn / "model.pt")
    with pytest.raises(ModelError, match="the model's output is not finite"):
        verify(torn)


def test_a_reference_that_is_not_finite_is_refused(
    tiny: Path, funasr: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = funasr.AutoModel.generate

    def generate(self: Any, *args: Any, **options: Any) -> Any:
        [result] = original(self, *args, **options)
        result["feats"] = result["feats"] * np.nan
        return [result]

    monkeypatch.setattr(funasr.AutoModel, "generate", generate)
    with pytest.raises(ModelError, match="differs from funasr by inf in features"):
        verify(tiny)


def test_other_labels_are_refused(tiny: Path, funasr: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = funasr.AutoModel.generate

    def generate(self: Any, *args: Any, **options: Any) -> Any:
        [result] = original(self, *args, **options)
        result["labels"] = result["labels"][::-1]
        return [result]

    monkeypatch.setattr(funasr.AutoModel, "generate", generate)
    with pytest.raises(ModelError, match="the labels differ from funasr's"):
        verify(tiny)


def test_without_funasr_the_package_is_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "funasr", None)
    with pytest.raises(ModelError, match="needs funasr: pip install funasr"):
        verify(tiny)


def test_what_the_reader_refuses_never_reaches_funasr(
    torn: Path, funasr: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = torn / "ran"
    text = (torn / "config.yaml").read_text("utf-8")
    start = text.index("feature_encoder_spec:")
    end = text.index("\n", start)
    evil = f"feature_encoder_spec: \"[(open('{marker}', 'w') and 32, 10, 5)]\""
    (torn / "config.yaml").write_text(text[:start] + evil + text[end:], "utf-8")
    monkeypatch.setattr(funasr, "AutoModel", None)
    with pytest.raises(ModelError, match="feature_encoder_spec must"):
        verify(torn)
    assert not marker.exists()


def test_settings_cannot_ask_for_other_models_or_half_precision(torn: Path, funasr: Any) -> None:
    with (torn / "config.yaml").open("a") as file:
        file.write("\nvad_model: fsmn-vad\nfp16: true\ntrust_remote_code: true\n")
    (torn / "model.py").write_text("open('ran', 'w')")
    (torn / "requirements.txt").write_text("no-such-package")
    assert verify(torn).features <= TOLERANCE


def test_failures_of_funasr_are_one_line(
    tiny: Path, funasr: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**options: Any) -> Any:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr(funasr, "AutoModel", fail)
    with pytest.raises(ModelError, match="funasr cannot load the model: first$"):
        verify(tiny)


def test_preparing_may_verify_first(
    tiny: Path, funasr: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    caplog.set_level(logging.INFO, "engine")
    prepare(str(tiny), tmp_path / "good", verify=True)
    assert is_prepared(tmp_path / "good")
    assert "3 clips agree with funasr" in caplog.text
    monkeypatch.setattr("engine.verify.TOLERANCE", 0.0)
    with pytest.raises(ModelError, match="differs from funasr"):
        prepare(str(tiny), tmp_path / "bad", verify=True)
    assert not is_prepared(tmp_path / "bad")


def test_clips_are_speech_like() -> None:
    waves = [speech_like(seconds, seed) for seed, seconds in enumerate(CLIP_SECONDS)]
    for wave, seconds in zip(waves, CLIP_SECONDS, strict=True):
        assert (wave.dtype, wave.shape) == (np.float32, (round(seconds * 16_000),))
        assert 0.05 < np.abs(wave).max() < 1
        frames = wave[: wave.size // 400 * 400].reshape(-1, 400).std(1)
        # syllables: loud and quiet frames
        assert frames.max() > 3 * frames.min()
    assert np.array_equal(waves[0], speech_like(CLIP_SECONDS[0], 0))
