"""Long sound is cut into passes, each what the excerpt alone would be."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sound_files import RATE, encode, voice, wav

from engine.audio import DecodeLimits, DecodeRequest, Pass, load, read_passes
from engine.audio.resample import is_odd_rate, length_at_16k, to_16k
from engine.errors import EmotionError
from engine.passes import pass_bounds

SHORT = dict(pass_seconds=2.0)


def passes_of(body: bytes, **request: object) -> list[Pass]:
    return load(io.BytesIO(body), DecodeRequest(**request))[0]


@pytest.mark.parametrize("seconds", [0.5, 2.0, 6.9, 7.0, 7.1, 9.0, 12.3, 60.0])
def test_passes_are_cut_where_the_rule_says(seconds: float) -> None:
    sound = voice(seconds)
    passes = passes_of(wav(sound), **SHORT)
    bounds = pass_bounds(len(sound), 2 * RATE, 5 * RATE)
    assert [(round(p.start * RATE), len(p.samples)) for p in passes] == [
        (first, end - first) for first, end in bounds
    ]
    np.testing.assert_array_equal(np.concatenate([p.samples for p in passes]), sound)
    assert [p.index for p in passes] == list(range(len(passes)))


@pytest.mark.parametrize("rate", [16_000, 44_100, 44_099])
@pytest.mark.parametrize("channels", ["mix", "split", 1])
def test_a_pass_is_what_the_excerpt_alone_is(rate: int, channels: str | int) -> None:
    left, right = voice(9.0, rate), voice(9.0, rate, 220)
    body = wav(np.stack([left, right], 1), rate)
    for whole in passes_of(body, channels=channels, **SHORT):
        alone = passes_of(
            body, channels=channels, start=whole.start, end=whole.start + whole.duration
        )
        (same,) = [p for p in alone if p.channel == whole.channel]
        assert same.start == pytest.approx(whole.start)
        assert same.samples.dtype == whole.samples.dtype
        np.testing.assert_array_equal(same.samples, whole.samples)


def test_start_and_end_are_exact_samples() -> None:
    sound = voice(5.0, 44_100)
    (excerpt,), (report,) = load(
        io.BytesIO(wav(sound, 44_100)), DecodeRequest(start=1.2345, end=3.0001)
    )
    first, end = round(1.2345 * 44_100), round(3.0001 * 44_100)
    np.testing.assert_array_equal(excerpt.samples, sound[first:end])
    assert excerpt.start == first / 44_100
    assert report.duration == (end - first) / 44_100


def test_an_end_behind_the_sound_is_its_end_and_a_start_behind_it_an_error() -> None:
    assert passes_of(wav(voice(2.0)), end=100.0)[0].duration == 2.0
    with pytest.raises(EmotionError) as caught:
        passes_of(wav(voice(2.0)), start=2.0)
    assert caught.value.error_type == "invalid_request"
    assert "2.000 s" in caught.value.message


@pytest.mark.parametrize(("start", "end"), [(-1.0, None), (1.0, 1.0), (2.0, 1.0), (None, 0.0)])
def test_an_impossible_span_is_an_error(start: float | None, end: float | None) -> None:
    with pytest.raises(EmotionError) as caught:
        passes_of(wav(voice(3.0)), start=start, end=end)
    assert caught.value.error_type == "invalid_request"


def test_what_lies_behind_the_end_is_not_decoded() -> None:
    body = wav(voice(30.0))
    reader = read_passes(io.BytesIO(body), DecodeRequest(end=1.0), DecodeLimits(5.0))
    assert next(reader).duration == 1.0


def test_integers_stay_integers_unless_mixed() -> None:
    stereo = np.stack([voice(1.0), voice(1.0, pitch=200)], 1)
    assert passes_of(wav(voice(1.0)))[0].samples.dtype == np.int16
    assert passes_of(wav(stereo), channels=0)[0].samples.dtype == np.int16
    assert passes_of(wav(stereo))[0].samples.dtype == np.float32


def test_the_mix_is_the_plain_average() -> None:
    left, right = voice(1.0), voice(1.0, pitch=200)
    (excerpt,) = passes_of(wav(np.stack([left, right], 1)))
    expected = (left.astype(np.float64) + right) / 2 / 32768
    np.testing.assert_allclose(excerpt.samples, expected, atol=1e-7)
    assert excerpt.channel is None


def test_equal_channels_give_exactly_themselves() -> None:
    sound = voice(1.0)
    (excerpt,), (report,) = load(io.BytesIO(wav(np.tile(sound[:, None], (1, 6)))))
    np.testing.assert_array_equal(excerpt.samples * 32768, sound)
    assert report.clipping_ratio == 0


def test_split_gives_each_channel_as_if_alone() -> None:
    left, right = voice(9.0), voice(9.0, pitch=200)
    passes, reports = load(
        io.BytesIO(wav(np.stack([left, right], 1))), DecodeRequest(channels="split", **SHORT)
    )
    for channel, sound in enumerate((left, right)):
        alone = passes_of(wav(sound), **SHORT)
        mine = [p for p in passes if p.channel == channel]
        assert [p.index for p in mine] == [p.index for p in alone]
        for one, other in zip(mine, alone, strict=True):
            np.testing.assert_array_equal(one.samples, other.samples)
    assert [r.channel for r in reports] == [0, 1]
    assert passes[0].index == passes[1].index == 0


@pytest.mark.parametrize("channel", [2, -1, 99])
def test_a_channel_that_is_not_there_is_an_error(channel: int) -> None:
    with pytest.raises(EmotionError) as caught:
        passes_of(wav(np.stack([voice(1.0)] * 2, 1)), channels=channel)
    assert caught.value.error_type == "invalid_request"
    assert str(channel) in caught.value.message


def test_cancelling_channels_give_the_loudest_one_pass_by_pass() -> None:
    sound = voice(9.0)
    other = -sound // 2
    other[: 2 * RATE] = sound[: 2 * RATE]
    nearly = np.stack([sound, np.where(np.arange(len(sound)) < 2 * RATE, sound, -sound)], 1)
    passes, (report,) = load(io.BytesIO(wav(nearly)), DecodeRequest(**SHORT))
    np.testing.assert_array_equal(passes[0].samples * 32768, sound[: 2 * RATE])
    np.testing.assert_array_equal(
        passes[1].samples, sound[2 * RATE : 2 * RATE + len(passes[1].samples)]
    )
    assert passes[1].samples.dtype == np.int16
    assert [code for code, _ in report.warnings] == ["phase_cancelled"]


def test_channels_that_only_weaken_each_other_are_mixed() -> None:
    sound = voice(1.0)
    (_,), (report,) = load(io.BytesIO(wav(np.stack([sound, -(sound // 2)], 1))))
    assert report.warnings == ()


def test_silent_channels_do_not_cancel() -> None:
    _, (report,) = load(io.BytesIO(wav(np.zeros((RATE * 2, 2), np.int16))))
    assert [code for code, _ in report.warnings] == ["no_speech"]


@pytest.mark.parametrize(
    ("rate", "samples", "enough"),
    [(16_000, 399, False), (16_000, 400, True), (8_000, 199, False), (8_000, 200, True),
     (44_100, 1_099, False), (44_100, 1_100, True), (44_099, 1_099, False), (44_099, 1_102, True)],
)  # fmt: skip
def test_too_short_is_judged_at_16_khz(rate: int, samples: int, enough: bool) -> None:
    body = wav(voice(1.0, rate)[:samples], rate)
    if enough:
        assert len(passes_of(body)[0].samples) >= 400 or not is_odd_rate(rate)
        return
    with pytest.raises(EmotionError) as caught:
        passes_of(body)
    assert caught.value.error_type == "audio_too_short"
    assert "400" in caught.value.message


def test_a_part_can_be_too_short_as_well() -> None:
    with pytest.raises(EmotionError) as caught:
        passes_of(wav(voice(2.0)), start=1.0, end=1.01)
    assert caught.value.error_type == "audio_too_short"


@pytest.mark.parametrize("rate", [44_099, 48_001, 22_051, 11_027, 7_999])
def test_odd_rates_arrive_at_16_khz(rate: int) -> None:
    time = np.arange(3 * rate) / rate
    tones = (200, 1_000, 0.4 * min(rate, RATE))
    sound = sum(0.2 * np.sin(2 * np.pi * f * time) for f in tones).astype(np.float32)
    assert is_odd_rate(rate)
    (excerpt,), (report,) = load(io.BytesIO(wav(sound, rate)))
    assert (excerpt.sample_rate, len(excerpt.samples)) == (RATE, length_at_16k(len(sound), rate))
    assert report.sample_rate == rate
    ideal = sum(0.2 * np.sin(2 * np.pi * f * np.arange(len(excerpt.samples)) / RATE) for f in tones)
    error = (excerpt.samples - ideal)[800:-800]
    assert 10 * np.log10((ideal**2).mean() / (error**2).mean()) > 60


def test_odd_rates_do_not_alias() -> None:
    time = np.arange(3 * 44_099) / 44_099
    high = np.sin(2 * np.pi * 10_000 * time).astype(np.float32)
    assert np.abs(to_16k(high, 44_099)[800:-800]).max() < 1e-3


@pytest.mark.parametrize("rate", [8_000, 11_025, 12_000, 16_000, 22_050, 44_100, 48_000, 96_000])
def test_usual_rates_are_left_alone(rate: int) -> None:
    assert not is_odd_rate(rate)
    assert passes_of(wav(voice(1.0, rate), rate))[0].sample_rate == rate


def test_too_long_says_the_limit_and_what_was_seen() -> None:
    with pytest.raises(EmotionError) as caught:
        list(read_passes(io.BytesIO(wav(voice(3.0))), limits=DecodeLimits(max_audio_seconds=2.5)))
    assert (caught.value.error_type, caught.value.status) == ("audio_too_long", 413)
    assert "2.5 s" in caught.value.message
    list(read_passes(io.BytesIO(wav(voice(2.5))), limits=DecodeLimits(max_audio_seconds=2.5)))


def test_samples_of_all_channels_are_counted() -> None:
    sound = np.zeros((RATE * 2, 2), np.int16)
    limits = DecodeLimits(max_decoded_samples=RATE * 4)
    list(read_passes(io.BytesIO(wav(sound)), limits=limits))
    limits = DecodeLimits(max_decoded_samples=RATE * 4 - 1)
    with pytest.raises(EmotionError, match=r"limit of 63999: 64000 in 2 channel") as caught:
        list(read_passes(io.BytesIO(wav(sound)), limits=limits))
    assert caught.value.error_type == "audio_too_long"


def test_passes_come_while_decoding_goes_on() -> None:
    blocks = []
    body = io.BytesIO(wav(voice(60.0)))
    reader = read_passes(body, DecodeRequest(**SHORT), on_block=lambda: blocks.append(1))
    next(reader)
    after_first = len(blocks)
    list(reader)
    assert after_first < len(blocks) / 5


def test_one_pass_of_absurd_formats_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.audio.buffer.MAX_HELD_BYTES", 1 << 20)
    with pytest.raises(EmotionError) as caught:
        passes_of(wav(np.zeros((RATE * 20, 8), np.int16)))
    assert caught.value.error_type == "audio_too_long"


def test_importing_the_package_needs_no_decoder() -> None:
    code = "import sys, engine.audio; print(sorted({'av', 'torch', 'ray'} & set(sys.modules)))"
    root = str(Path(__file__).parents[3])
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True)
    assert run.stdout == b"[]\n"


def test_load_takes_a_path(tmp_path: Path) -> None:
    path = tmp_path / "sound.flac"
    path.write_bytes(encode(voice(1.0), "flac", "flac"))
    (excerpt,), (report,) = load(path)
    np.testing.assert_array_equal(excerpt.samples, voice(1.0))
    assert report.source() == {
        "format": "flac",
        "sample_rate": RATE,
        "channels": 1,
        "level_dbfs": report.level_dbfs,
        "clipping_ratio": 0.0,
    }


@pytest.mark.parametrize("said", [True, False])
def test_hours_of_silence_are_refused_before_any_is_heard(said: bool) -> None:
    body = bytearray(encode(np.zeros(RATE * 600, np.int16), "flac", "flac"))
    if not said:  # the number of samples in STREAMINFO: 36 bits
        body[21] &= 0xF0
        body[22:26] = bytes(4)
    limits = DecodeLimits(max_audio_seconds=300.0)
    with pytest.raises(EmotionError, match="limit of 300 s: it (lasts 600|goes on)") as caught:
        next(read_passes(io.BytesIO(body), limits=limits))
    assert caught.value.error_type == "audio_too_long"
    [excerpt] = read_passes(io.BytesIO(body), DecodeRequest(end=20.0), limits)
    assert excerpt.duration == 20.0


def test_header_that_lies_about_its_length_is_not_believed() -> None:
    body = bytearray(encode(voice(3.0), "flac", "flac"))
    body[22:26] = b"\xff" * 4
    [excerpt] = read_passes(io.BytesIO(body))
    assert excerpt.duration == pytest.approx(3.0)


def test_cut_file_of_hours_is_heard_as_far_as_it_goes() -> None:
    whole = encode(np.tile(voice(10.0), 40), "flac", "flac")
    passes = list(
        read_passes(
            io.BytesIO(whole[: len(whole) // 2]), limits=DecodeLimits(max_audio_seconds=300)
        )
    )
    assert passes[-1].start > 120
