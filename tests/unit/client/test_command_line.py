"""`e2v` without a server of ours: flags, rows, exit codes, one line per failure."""

import argparse
import io
import json
import socket
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from client.cli import COMMANDS, build_parser, main
from client.commands import CommandError
from client.commands.settings_flags import add_settings, explicit, flag, make_settings
from serve_app.settings import Settings


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"usage: e2v {command}" in capsys.readouterr().out


def test_every_setting_is_a_flag_of_serve() -> None:
    given: list[str] = ["serve"]
    wanted: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        choices = get_args(field.annotation)
        if isinstance(field.default, str) and choices:
            wanted[name] = choices[-1]
        elif isinstance(field.default, tuple):
            wanted[name] = ("a", "b")
        else:
            wanted[name] = field.default
        value = wanted[name]
        given += [flag(name), ",".join(value) if isinstance(value, tuple) else str(value)]
    options = build_parser().parse_args(given)
    assert explicit(options, Settings) == wanted


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2V_MAX_FILES", "3")
    monkeypatch.setenv("E2V_PASS_SECONDS", "20")
    parser = argparse.ArgumentParser()
    add_settings(parser, Settings)
    values = explicit(parser.parse_args(["--max-files", "5"]), Settings)
    settings = make_settings(Settings, values)
    assert settings.model_dump(exclude_unset=True) == {"max_files": 5, "pass_seconds": 20.0}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"pass_seconds": 300.0},
            r"^--pass-seconds: input should be less than or equal to 120 \(got 300.0\)$",
        ),
        ({"device": "cuda", "model_gpus": 0}, "^device=cuda needs model_gpus above 0"),
        ({"no_such": 1}, "^--no-such: extra inputs are not permitted"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        make_settings(Settings, values)


def test_predict_writes_one_row_per_file_errors_included(
    fake_server: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad = tmp_path / "gut ü.wav", tmp_path / "bad.wav"
    good.write_bytes(b"good")
    bad.write_bytes(b"bad")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"good")))
    files = [str(good), str(bad), str(tmp_path / "none.wav"), "-"]
    code = main(["predict", *files, "--url", fake_server, "--top-k", "1"])
    output = capsys.readouterr()
    first, second, third, fourth = rows(output.out)
    assert code == 1
    assert [row["file"] for row in (first, second, third, fourth)] == files
    assert first["label"] == fourth["label"] == "happy"
    assert second["error_type"] == "unsupported_media_type"
    assert (second["error"], second["status"]) == ("not audio", 415)
    assert third["error"] == "cannot be read: No such file or directory"
    assert "ü" in output.out
    assert output.err.splitlines() == [
        f"e2v: {bad}: not audio",
        f"e2v: {tmp_path / 'none.wav'}: cannot be read: No such file or directory",
    ]


def test_predict_passes_its_parameters_on(
    fake_server: str, fake_requests: list[str], tmp_path: Path
) -> None:
    audio = tmp_path / "a.wav"
    audio.write_bytes(b"good")
    flags = ["--granularity", "frame", "--embeddings", "utterance", "--top-k", "2"]
    assert main(["predict", str(audio), "--url", fake_server, *flags]) == 0
    assert fake_requests == [
        "/v1/audio/emotions?granularity=frame&top_k=2&embeddings=utterance",
    ]


def test_without_a_server_every_file_still_has_its_row_and_only_the_first_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("client.client.time.sleep", waits.append)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        audio = tmp_path / "a.wav"
        audio.write_bytes(b"good")
        assert main(["predict", str(audio), str(audio), str(audio), "--url", url]) == 1
    found = rows(capsys.readouterr().out)
    assert [row["error_type"] for row in found] == ["connection_failed"] * 3
    assert len(waits) == 4


def test_info_prints_what_the_server_says(
    fake_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--url", fake_server]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": "fake"}
    assert main(["info", "--url", "http://127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("e2v: no connection to http://127.0.0.1:1: ")
    assert error.count("\n") == 1


def test_info_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--local"]) == 0
    local = json.loads(capsys.readouterr().out)
    assert local["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert local["dtype"] in ("float32", "float16", "bfloat16")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "no/such/directory/here"], "model directory 'no/such/directory/here'"),
        (["check", "emotion2vec_mini", "--device", "abacus"], "device 'abacus' is not"),
        (["prepare", "no/such/directory/here"], "preparing a directory needs an output"),
    ],
)
def test_models_that_cannot_be_used_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"e2v: {message}")
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["predict"], ["serve", "--port", "0"]])
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
