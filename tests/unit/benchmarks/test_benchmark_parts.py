"""Floors, clips, distances, cold-start rows, process names, the command line."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import endurance, first_request
from benchmarks.audio_kinds import KINDS, AudioKind
from benchmarks.checkpoints import SHAPES, model_conf
from benchmarks.clips import clip, mixed_lengths
from benchmarks.cold_start import cold_section
from benchmarks.comparing import distance, require
from benchmarks.engine_rows import headline_note
from benchmarks.floors import flop
from benchmarks.hearing import waves_of
from benchmarks.plan import full, quick
from benchmarks.processes import name_of, peak_memory_bytes
from benchmarks.random_model import config_of, engine_of, random_checkpoint
from benchmarks.report import OutputsDiffer, Report
from benchmarks.sizing import sizing_entry, with_entry
from engine.config import from_funasr
from engine.emotions import Emotions


def test_the_large_shape_costs_38_gflop_per_audio_second() -> None:
    config = config_of(SHAPES["large"])
    assert flop(config, 160_000) / 10 == pytest.approx(38e9, rel=0.05)


def test_work_grows_with_the_clip_and_counts_attention_as_quadratic() -> None:
    config = config_of(SHAPES["base"])
    one, two, four = (flop(config, 16_000 * seconds) for seconds in (10, 20, 40))
    assert two > 2 * one * 0.99
    assert four - 2 * two > 2 * (two - 2 * one)


@pytest.mark.parametrize("size", list(SHAPES))
def test_the_random_model_has_the_configuration_of_the_checkpoint(size: str) -> None:
    assert config_of(SHAPES[size]) == from_funasr(model_conf(SHAPES[size]))


def test_mixed_lengths_are_those_of_the_design() -> None:
    lengths = mixed_lengths(200.0)
    assert sum(lengths) >= 200
    assert 1 <= min(lengths) <= max(lengths) <= 30
    assert max(lengths) > 4 * min(lengths)
    assert lengths == mixed_lengths(200.0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_five_kinds_decode_to_their_length(kind: AudioKind) -> None:
    seconds = kind.seconds[0]
    [wave] = waves_of(kind.file(seconds))
    assert wave.size == pytest.approx(seconds * 16_000, abs=1600)
    assert np.abs(wave[-16_000:]).max() > 0.05


def test_the_noise_is_12_db_below_the_speech() -> None:
    noisy = next(kind for kind in KINDS if "noise" in kind.name)
    [wave] = waves_of(noisy.file(4.0))
    clean = clip(4.0)
    size = min(wave.size, clean.size)
    noise = wave[:size] - clean[:size]
    ratio = 10 * np.log10(np.mean(clean[:size] ** 2) / np.mean(noise**2))
    assert 9 < ratio < 15


def test_the_silence_is_silent() -> None:
    silent = next(kind for kind in KINDS if "silence" in kind.name)
    [wave] = waves_of(silent.file(8.0))
    assert np.abs(wave[: 2 * 16_000]).max() == 0
    assert np.abs(wave[3 * 16_000 :]).max() > 0.05


def emotions(logits: float, feature: float) -> Emotions:
    frames = np.array([[logits, 0.0]], np.float32)
    features = np.full((1, 3), feature, np.float32)
    return Emotions(("a/a", "b/b"), frames, (1,), features[0], features)


def test_distance_sees_features_scores_and_labels() -> None:
    apart = distance([emotions(1.0, 0.0)], [emotions(-1.0, 0.25)])
    assert apart.features == pytest.approx(0.25)
    assert apart.scores == pytest.approx(0.4621, abs=1e-3)
    assert apart.same_top == 0
    assert distance([emotions(1.0, 0.0)], [emotions(1.0, float("nan"))]).features == float("inf")


def test_require_refuses_what_is_too_far_or_no_number() -> None:
    assert "within 1.0e-05" in require("scores", 1e-5, 1e-4)
    for value in (1e-3, float("nan"), float("inf")):
        with pytest.raises(OutputsDiffer):
            require("scores", value, 1e-4)


def test_cold_start_compares_the_medians() -> None:
    ours = [{"import": 1.0, "weights": 1.0, "weights on the device": 1.0, "warm-up": 2.0}] * 3
    ours = [{name: v for name, v in one.items() if name != "weights"} for one in ours]
    theirs = [{"import": 4.0, "weights on the device": 4.0}] * 3
    rows = cold_section("large", ours, theirs).rows
    assert [row.value for row in rows[2:]] == [0.25, 0.5]
    assert [row.verdict for row in rows[2:]] == ["met", "met"]


def test_endurance_compares_each_turn_with_the_other_server_s_beside_it() -> None:
    # the machine halves its speed between the turns, one of which something disturbed
    turns = [endurance.Turn(0.0105, 0.01), endurance.Turn(0.021, 0.02), endurance.Turn(0.06, 0.02)]
    cost, memory = endurance.rows_of(turns, (1000, 1200), 10_000)
    assert cost.value == pytest.approx(1.05)
    assert (cost.verdict, memory.verdict) == ("met", "missed")
    assert "after 10000 requests / of one after 1000" in cost.quantity


def test_the_first_request_is_compared_with_later_ones_of_its_own_start() -> None:
    starts = [first_request.Start(0.21, 0.2), first_request.Start(0.42, 0.4)]
    row = first_request.row_of([*starts, first_request.Start(0.9, 0.3)], "large")
    assert row.value == pytest.approx(1.05)
    assert row.verdict == "met"
    assert "3.00×" in row.note


def test_a_budget_out_of_reach_is_explained_by_the_floor() -> None:
    note = headline_note(ceiling=2.2)
    assert "2.2× funasr" in note
    assert "out of reach" in note
    assert headline_note(ceiling=6.6).endswith("6.6× funasr")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ray::ServeReplica:subject:Model.handle_request", "subject: Model"),
        ("ray::ProxyActor", "HTTP proxy"),
        ("ray::ServeController.run", "Serve controller"),
        ("python -m something", None),
    ],
)
def test_processes_are_known_by_their_command_line(line: str, name: str | None) -> None:
    assert name_of(line) == name


def test_peak_memory_of_this_process_is_sensible() -> None:
    assert 10 * 2**20 < peak_memory_bytes() < 2**40


def test_an_engine_of_random_weights_scores_away_from_uniform() -> None:
    import torch

    engine = engine_of(random_checkpoint("tiny"), torch.device("cpu"), torch.float32)
    scores = engine.infer([clip(1.0)])[0].scores
    assert sum(scores.values()) == pytest.approx(1)
    assert max(scores.values()) > 1.5 / len(scores)


def test_the_modes_differ_in_shape(tmp_path: Path) -> None:
    assert quick(tmp_path).subject == "base"
    assert full(tmp_path).subject == full(tmp_path).headline == quick(tmp_path).headline == "large"


def test_only_the_full_mode_sizes_a_device() -> None:
    facts = {
        "dtype": "float32",
        "engine_audio_seconds_per_second": 6.543,
        "cold_start": {"import": 1.0, "warm-up": 2.04},
    }
    environment = {"gpu": "none", "cpu": "a CPU, 2 cores"}
    report = Report("full", "python -m benchmarks --full", environment, ["ok"], [], facts)
    entry = sizing_entry(report)
    assert entry is not None

    from cluster.sizing import Measured

    measured = Measured(**entry)
    assert (measured.audio_seconds_per_second, measured.start_seconds) == (6.54, 3.0)
    report.mode = "quick"
    assert sizing_entry(report) is None


def test_a_device_s_size_replaces_its_own_and_keeps_the_others() -> None:
    others = [{"device": "card", "dtype": "float16"}, {"device": "a CPU", "dtype": "bfloat16"}]
    first = {"device": "a CPU", "dtype": "float32", "start_seconds": 3.0}
    again = {**first, "start_seconds": 2.5}
    known = with_entry(others, first)
    assert known == [*others, first]
    assert with_entry([first, *others], again) == [again, *others]


def test_differing_outputs_end_the_command_without_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> Report:
        raise OutputsDiffer("scores: 1.0e-01, more than 1e-04")

    monkeypatch.setattr(command, "run", run)
    code = command.main(["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")])
    printed = capsys.readouterr()
    assert (code, printed.out) == (1, "")
    assert "no time is printed" in printed.err


def test_an_unwritable_folder_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert command.main(["--out", str(tmp_path / "file" / "out")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_run_writes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("quick", "make bench", {"cpu": "c", "gpu": "none"}, ["outputs agree"])
    monkeypatch.setattr(command, "run", lambda *_: report)
    assert command.main(["--out", str(tmp_path / "o"), "--work", str(tmp_path / "w")]) == 0
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == [
        "report.json",
        "report.svg",
    ]
    assert "outputs agree" in capsys.readouterr().out
