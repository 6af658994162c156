"""Every response_format, read back by parsers of the format's own rules."""

import csv
import io
import json
import re
from typing import Any

import numpy as np
import pytest
from result_objects import ERROR, THIRD, frames, listed, result, segment, segments
from textgrid_reader import read_textgrid

from serve_app.formats import MEDIA_TYPES, render
from serve_app.results import to_json

TIMESTAMP = r"\d{2,}:[0-5]\d:[0-5]\d\.\d{3}"
CUE_TEXT = r"(?:<v [^\n<>&]+>)?(?:[^\n<>&]|&amp;|&lt;|&gt;)+"
CUE = rf"{TIMESTAMP} --> {TIMESTAMP}\n{CUE_TEXT}"
VTT = re.compile(rf"WEBVTT(?:\n\n(?:NOTE (?:(?!-->)[^\n])*|{CUE}))*\n")


def body(value: dict[str, Any], response_format: str, start: float = 0.0) -> bytes:
    written, media_type = render(value, response_format, start)
    assert media_type == MEDIA_TYPES[response_format]
    return written


def json_lines(value: dict[str, Any], start: float = 0.0) -> list[dict[str, Any]]:
    text = body(value, "ndjson", start).decode()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def table(value: dict[str, Any], start: float = 0.0) -> list[list[str]]:
    text = body(value, "csv", start).decode()
    assert text.count("\r\n") == text.count("\n")
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def cues(value: dict[str, Any], start: float = 0.0) -> list[tuple[str, str]]:
    text = body(value, "vtt", start).decode()
    assert VTT.fullmatch(text), text
    blocks = [block for block in text.strip().split("\n\n")[1:] if not block.startswith("NOTE")]
    found = [tuple(block.split("\n")) for block in blocks]
    starts = [timing.split(" --> ")[0] for timing, _ in found]
    assert starts == sorted(starts)
    assert all(a < b for a, b in (timing.split(" --> ") for timing, _ in found))
    return found


def test_json_is_the_object_itself() -> None:
    value = result(1.5)
    assert body(value, "json") == to_json(value)


def test_utterance_is_one_line_row_cue_and_interval() -> None:
    value = result(1.5)
    [line] = json_lines(value)
    assert line == json.loads(to_json(value))
    header, row = table(value)
    assert header == ["start", "end", "label", "score", "angry", "happy"]
    assert row == ["0.0", "1.5", "happy", "0.6", "0.33333334", "0.6"]
    assert cues(value) == [("00:00:00.000 --> 00:00:01.500", "happy 0.6")]
    grid = read_textgrid(body(value, "textgrid"))
    assert grid.xmax == 1.5
    assert grid.tiers == {"emotion": [(0, 1.5, "happy")], "score": [(0, 1.5, "0.6")]}


def test_the_start_of_the_request_moves_the_timeline() -> None:
    value = result(1.1)
    assert table(value, 2.2)[1][:2] == ["2.2", "3.3"]
    assert cues(value, 2.2)[0][0] == "00:00:02.200 --> 00:00:03.300"
    tiers = read_textgrid(body(value, "textgrid", 2.2)).tiers
    assert tiers["emotion"] == [(0, 2.2, ""), (2.2, 3.3, "happy")]


def test_segments_are_lines_rows_cues_and_intervals() -> None:
    parts = [segment(0.0, 1.0, happy=0.9, angry=0.1), segment(2.0, 3.0, angry=0.8)]
    value = segments(3661.5, *parts)
    assert json_lines(value) == json.loads(to_json(parts))
    assert table(value)[1:] == [
        ["0.0", "1.0", "happy", "0.9", "0.1", "0.9"],
        ["2.0", "3.0", "angry", "0.8", "0.8", ""],
    ]
    assert cues(value)[1] == ("00:00:02.000 --> 00:00:03.000", "angry 0.8")
    tiers = read_textgrid(body(value, "textgrid")).tiers
    assert [text for _, _, text in tiers["emotion"]] == ["happy", "", "angry", ""]


def test_hours_in_captions() -> None:
    value = segments(3661.5, segment(3600.0, 3661.5, happy=1.0))
    assert cues(value)[0][0] == "01:00:00.000 --> 01:01:01.500"


def test_no_segment_at_all() -> None:
    value = segments(2.0)
    assert json_lines(value) == []
    assert table(value) == [["start", "end", "label", "score"]]
    assert body(value, "vtt") == b"WEBVTT\n"
    tiers = read_textgrid(body(value, "textgrid")).tiers
    assert tiers == {"emotion": [(0, 2, "")], "score": [(0, 2, "")]}


def test_overlapping_windows_keep_the_time_around_their_centre_in_praat() -> None:
    value = segments(
        4.0,
        segment(0.0, 2.0, happy=0.9),
        segment(1.0, 3.0, angry=0.8),
        segment(2.0, 4.0, happy=0.7),
    )
    tiers = read_textgrid(body(value, "textgrid")).tiers
    assert tiers["emotion"] == [(0, 1.5, "happy"), (1.5, 2.5, "angry"), (2.5, 4, "happy")]
    assert [timing[:12] for timing, _ in cues(value)] == [
        "00:00:00.000",
        "00:00:01.000",
        "00:00:02.000",
    ]


def test_frames_are_lines_of_the_shape_of_segments() -> None:
    value = frames(0.065, (0.0, [[0.9, 0.1], [0.2, THIRD], [0.6, 0.4]]))
    lines = json_lines(value)
    assert [(line["start"], line["end"]) for line in lines] == [
        (0, 0.02),
        (0.02, 0.04),
        (0.04, 0.065),
    ]
    assert lines[1]["scores"] == [
        {"label": "angry", "score": 0.33333334},
        {"label": "happy", "score": 0.2},
    ]
    assert lines[1]["label"] == "angry"
    assert "embedding" not in lines[0]
    assert table(value)[2] == ["0.02", "0.04", "angry", "0.33333334", "0.33333334", "0.2"]


def test_frame_embeddings_go_with_their_frames() -> None:
    value = frames(0.045, (0.0, [[0.9, 0.1], [0.2, 0.8]]))
    value["frames"]["runs"][0]["embeddings"] = np.array([[1, 2], [3, THIRD]], np.float32)
    assert [line["embedding"] for line in json_lines(value)] == [[1.0, 2.0], [3.0, 0.33333334]]


def test_neighbouring_frames_of_one_label_are_one_stretch_also_across_passes() -> None:
    value = frames(
        0.1,
        (0.0, [[0.875, 0.125], [0.625, 0.375], [0.25, 0.75]]),
        (0.06, [[0.375, 0.625], [0.8, 0.2]]),
    )
    expected = [
        ("00:00:00.000 --> 00:00:00.040", "happy 0.75"),
        ("00:00:00.040 --> 00:00:00.080", "angry 0.6875"),
        ("00:00:00.080 --> 00:00:00.100", "happy 0.8"),
    ]
    assert cues(value) == expected
    tiers = read_textgrid(body(value, "textgrid")).tiers
    assert tiers["emotion"] == [(0, 0.04, "happy"), (0.04, 0.08, "angry"), (0.08, 0.1, "happy")]
    assert tiers["score"][1] == (0.04, 0.08, "0.6875")


def test_frames_that_leave_out_silence_stay_apart() -> None:
    value = frames(1.0, (0.2, [[0.9, 0.1]]), (0.6, [[0.9, 0.1]]))
    tiers = read_textgrid(body(value, "textgrid")).tiers
    assert [(a, b) for a, b, text in tiers["emotion"] if text] == [(0.2, 0.22), (0.6, 0.62)]


def test_frame_times_do_not_drift() -> None:
    value = frames(30.0, (0.0, [[0.9, 0.1]] * 1499))
    rows = table(value)[1:]
    assert [row[0] for row in rows[:1499:499]] == ["0.0", "9.98", "19.96", "29.94"]
    assert rows[-1][1] == "30.0"
    assert rows[35][0] == "0.7"


def test_list_says_which_item_and_what_failed() -> None:
    value = listed(
        {"index": 0, **segments(2.0, segment(0.0, 2.0, happy=0.9))},
        {"index": 1, **ERROR},
        {"index": 2, **segments(5.0, segment(0.0, 5.0, angry=0.7))},
    )
    lines = json_lines(value)
    assert [line["index"] for line in lines] == [0, 1, 2]
    assert lines[1] == {"index": 1, **ERROR}
    assert table(value) == [
        ["index", "start", "end", "label", "score", "angry", "happy", "error_type", "error"],
        ["0", "0.0", "2.0", "happy", "0.9", "", "0.9", "", ""],
        ["1", "", "", "", "", "", "", "audio_too_short", "the audio lasts 0 s"],
        ["2", "0.0", "5.0", "angry", "0.7", "0.7", "", "", ""],
    ]
    assert [text for _, text in cues(value)] == ["<v file 0>happy 0.9", "<v file 2>angry 0.7"]
    assert b"\n\nNOTE file 1 audio_too_short: the audio lasts 0 s\n\n" in body(value, "vtt")
    grid = read_textgrid(body(value, "textgrid"))
    assert list(grid.tiers) == [
        "emotion file 0",
        "score file 0",
        "emotion file 1",
        "emotion file 2",
        "score file 2",
    ]
    assert grid.tiers["emotion file 0"] == [(0, 2, "happy"), (2, 5, "")]
    assert grid.tiers["emotion file 1"] == [(0, 5, "error audio_too_short: the audio lasts 0 s")]


def test_channels_are_tiers_and_voices_in_order_of_time() -> None:
    value = listed(
        {"channel": 0, **segments(4.0, segment(0, 2, happy=0.9), segment(2, 4, happy=0.8))},
        {"channel": 1, **segments(4.0, segment(1, 3, angry=0.7))},
    )
    assert [text for _, text in cues(value)] == [
        "<v channel 0>happy 0.9",
        "<v channel 1>angry 0.7",
        "<v channel 0>happy 0.8",
    ]
    assert table(value)[0][0] == "channel"
    assert [line["channel"] for line in json_lines(value)] == [0, 0, 1]
    assert "emotion channel 1" in read_textgrid(body(value, "textgrid")).tiers


def test_channels_of_several_files_have_both_names() -> None:
    value = listed({"index": 3, "channel": 1, **result(1.0)})
    assert [row[:2] for row in table(value)] == [["index", "channel"], ["3", "1"]]
    assert cues(value)[0][1] == "<v file 3 channel 1>happy 0.6"


def test_every_item_failed() -> None:
    value = listed({"index": 0, **ERROR})
    assert len(table(value)) == 2
    assert cues(value) == []
    assert read_textgrid(body(value, "textgrid")).xmax == 1


@pytest.mark.parametrize("label", ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\rx", " =x", "＝x"])
def test_a_spreadsheet_never_sees_a_formula(label: str) -> None:
    header, row = table(result(1.0, scores=[{"label": label, "score": THIRD}]))
    assert header[4] == row[2] == f"'{label}"
    assert row[3] == "0.33333334"
    failed = table(listed({"index": 0, **ERROR, "error": label}))
    assert failed[1][-1] == f"'{label}"


def test_csv_quotes_and_tells_labels_from_its_own_columns() -> None:
    value = result(1.0, scores=[{"label": label, "score": THIRD} for label in ('a,"b', "end")])
    header, row = table(value)
    assert header == ["start", "end", "label", "score", 'a,"b', "score end"]
    assert row[2] == 'a,"b'


def test_foreign_text_does_not_break_out_of_captions_or_tiers() -> None:
    label = 'a"b"\n\n00:00 --> <b>&'
    value = listed(
        {"index": 0, **result(1.0, scores=[{"label": label, "score": THIRD}])},
        {"index": 1, **ERROR, "error": 'x\n\n--> "quoted" <i>'},
    )
    [(_, text)] = cues(value)
    assert text == '<v file 0>a"b"  00:00 --&gt; &lt;b&gt;&amp; 0.33333334'
    tiers = read_textgrid(body(value, "textgrid")).tiers
    assert tiers["emotion file 0"][0][2] == 'a"b"  00:00 --> <b>&'


def test_a_model_without_labels_has_times_alone() -> None:
    value = {k: v for k, v in result(1.0).items() if k not in ("label", "score", "scores")}
    assert table(value) == [["start", "end", "label", "score"], ["0.0", "1.0", "", ""]]
    assert body(value, "vtt") == b"WEBVTT\n"
    assert read_textgrid(body(value, "textgrid")).tiers["emotion"] == [(0, 1, "")]


def test_frames_of_embeddings_alone() -> None:
    value = frames(1.0)
    value["frames"] = {"hop": 0.02, "labels": [], "runs": [{"start": 0.0, "embeddings": [[0.5]]}]}
    assert json_lines(value) == []
    assert cues(value) == []
    assert read_textgrid(body(value, "textgrid")).tiers["emotion"] == [(0, 1, "")]


def test_chinese_labels_are_utf8() -> None:
    value = result(1.0, scores=[{"label": "生气", "score": THIRD}])
    assert table(value)[1][2] == "生气"
    assert cues(value)[0][1].startswith("生气 ")
    assert read_textgrid(body(value, "textgrid")).tiers["emotion"][0][2] == "生气"


def test_a_caption_shorter_than_a_millisecond_still_ends_after_it_begins() -> None:
    value = segments(1.0, segment(0.5, 0.5004, happy=1.0))
    assert cues(value)[0][0] == "00:00:00.500 --> 00:00:00.501"
