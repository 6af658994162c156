"""`e2v serve` as its users run it: a process of its own, from the first line to the last."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from serving import E2V, ROOT, SAMPLE, Server, environment, free_port, session_members, spawn, start

from client import Client
from client.cli import main
from serve_app.ray_environment import SHARED_CORES

START_SECONDS = 120

OTHER_JOB = """
import ray
from ray import serve

ray.init(namespace="somebody_else", log_to_driver=False, logging_level="ERROR")
handle = serve.get_app_handle("emotion2vec")
audio = open({sample!r}, "rb").read()
answers = [handle.predict.remote(audio) for _ in range(50)]
labels = [answer.result(timeout_s=60)["scores"] for answer in answers]
assert all(label == labels[0] for label in labels)
print(__import__("json").dumps(labels[0]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("serve") / "log"
    with start(log, "--config", "serve_config.yaml") as running:
        yield running


def run_e2v(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*E2V, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
        timeout=START_SECONDS,
    )


def test_ready_says_where_and_the_curl_line_works_as_pasted(server: Server) -> None:
    assert server.ready[0] == f"emotion2vec_mini is ready at {server.url} (Ctrl-C stops it)"
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    answer = subprocess.run(
        ["bash", "-c", server.ready[1]], capture_output=True, text=True, check=True
    )
    result = json.loads(answer.stdout)
    assert len(result["scores"]) == 9
    assert sum(item["score"] for item in result["scores"]) == pytest.approx(1, abs=1e-5)
    assert result["label"] == result["scores"][0]["label"]


def test_the_console_has_only_lines_of_ours(server: Server) -> None:
    assert all(line.startswith("e2v: ") for line in server.log.read_text().splitlines())


def test_the_client_reads_its_answer_and_the_stage_times(server: Server) -> None:
    with Client(server.url) as client:
        before = time.perf_counter()
        result = client.predict(SAMPLE, granularity="frame", embeddings="utterance")
        wall = (time.perf_counter() - before) * 1000
        info = client.info()
        assert client.health()
    assert result.label == next(iter(result.scores))
    assert result.frames is not None
    assert len(result.frames.runs[0].scores) == pytest.approx(result.duration / 0.02, abs=2)
    assert result.embedding
    assert info["model"] == "emotion2vec_mini"
    stages = {name: ms for name, ms in result.timings.items() if name != "total"}
    assert {"decode", "model"} <= set(stages)
    assert sum(stages.values()) <= result.timings["total"] + 0.5
    assert result.timings["total"] <= wall


def test_predict_gives_rows(server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"no audio at all")
    done = run_e2v("predict", str(SAMPLE), str(broken), "--url", server.url, "--top-k", "2")
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert len(first["scores"]) == 2
    assert second["error_type"] == "unsupported_media_type"


def test_another_job_with_the_token_calls_the_handle(server: Server) -> None:
    [line] = [line for line in server.log.read_text().splitlines() if "RAY_ADDRESS=" in line]
    variables = dict(word.split("=", 1) for word in line.split() if word.startswith("RAY_"))
    done = subprocess.run(
        [sys.executable, "-c", OTHER_JOB.format(sample=str(SAMPLE))],
        capture_output=True,
        text=True,
        env={**environment(), **variables},
        cwd=ROOT,
        timeout=START_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    with Client(server.url) as client:
        over_http = client.predict(SAMPLE).scores
    by_handle = {item["label"]: item["score"] for item in json.loads(done.stdout.splitlines()[-1])}
    assert by_handle == pytest.approx(over_http, abs=1e-3)


def test_only_replicas_listen_beyond_the_loopback(server: Server) -> None:
    open_to_all = {
        process.name()
        for process in server.family()
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr.ip not in ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    }
    assert all(name.startswith("ray::ServeRep") for name in open_to_all)


def test_ray_reads_what_spares_the_cores(server: Server) -> None:
    ray_files = Path(str(files("ray")))
    known = (ray_files / "serve" / "_private" / "constants.py").read_bytes()
    known += (ray_files / "core" / "src" / "ray" / "raylet" / "raylet").read_bytes()
    for name in SHARED_CORES:
        assert name.encode() in known
    names = ("raylet", "ray::ServeController")
    readers = [p for p in server.family() if p.name().startswith(names)]
    assert len(readers) == 2
    for process in readers:
        assert process.environ().items() >= SHARED_CORES.items()


def test_ctrl_c_leaves_nothing(server: Server) -> None:
    family = server.family()
    directory = Path(server.log.read_text().rpartition("RAY_AUTH_TOKEN_PATH=")[2].strip()).parent
    assert directory.is_dir()
    assert server.stop(signal.SIGINT) == 0
    assert session_members(server.process.pid) == []
    assert [process for process in family if process.is_running()] == []
    assert not directory.exists()
    assert server.log.read_text().splitlines()[-1] == "e2v: stopping …"


def hostile(checkpoint: Path, kind: str, target: Path, mark: Path) -> Path:
    """A copy of `checkpoint` that would make `mark` if anything in it were run."""
    if kind == "none":
        return target
    shutil.copytree(checkpoint, target)
    if kind == "pickle":
        import torch

        class Code:
            def __reduce__(self) -> Any:
                return (os.mkdir, (str(mark),))

        torch.save({"model": {"proj.weight": Code()}}, target / "model.pt")
    else:
        config = yaml.safe_load((target / "config.yaml").read_text("utf-8"))
        audio = config["model_conf"]["modalities"]["audio"]
        audio["feature_encoder_spec"] = f"__import__('os').mkdir({str(mark)!r})"
        (target / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    return target


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("none", "does not exist"),
        ("pickle", "model.pt"),
        ("yaml", "config.yaml: feature_encoder_spec"),
    ],
)
def test_a_model_that_cannot_be_loaded_stops_the_start_in_one_line(
    tiny_checkpoint: Path, tmp_path: Path, kind: str, message: str
) -> None:
    mark = tmp_path / "mark"
    model = hostile(tiny_checkpoint, kind, tmp_path / "model", mark)
    done = run_e2v("serve", "--port", str(free_port()), "--model", str(model))
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("e2v: ")
    assert message in line
    assert not mark.exists()
    assert done.stdout == ""


def test_what_does_not_fit_stops_the_start_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
    greedy = {"name": "Model", "ray_actor_options": {"num_cpus": 6_400}}
    config["applications"][0]["deployments"] = [greedy]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    flags = ["--config", str(tmp_path / "config.yaml")]
    process = spawn(log, "--port", str(free_port()), *flags)
    output, _ = process.communicate(timeout=START_SECONDS)
    assert (process.returncode, output) == (1, "")
    assert "e2v: a replica of Model does not fit: it needs 6400 CPU" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert session_members(process.pid) == []


def test_a_taken_port_is_told_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 1
    error = capsys.readouterr().err
    assert error.startswith("e2v: cannot listen on 127.0.0.1 port ")
    assert error.count("\n") == 1
