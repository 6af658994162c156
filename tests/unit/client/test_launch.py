"""What `e2v serve` decides without starting anything."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serve_app.console import own_console
from serve_app.launch import LaunchPlan
from serve_app.launch_config import ConfigError, read_config
from serve_app.launch_network import LaunchError, check_cluster, check_port, health
from serve_app.stop_signal import StopSignal
from serve_app.watch import failure, without_room

ROOT = Path(__file__).parents[3]
ROOM = (
    "Deployment 'Model' in application 'emotion2vec' has 1 replicas that have taken more than 5s "
    "to be scheduled. This may be due to waiting for the cluster to auto-scale or for a runtime "
    "environment to be installed. Resources required for each replica: "
    "{'CPU': 0.1, 'GPU': 2.0}, total resources available: {'CPU': 1.7}. Use `ray status`."
)


@pytest.fixture
def listening() -> Iterator[int]:
    """A port of the loopback that is taken."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def application(status: str = "DEPLOYING", message: str = "", **deployments: str) -> Any:
    """What Serve's status says of an application."""
    return SimpleNamespace(
        status=status,
        message=message,
        deployments={name: SimpleNamespace(message=text) for name, text in deployments.items()},
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_without_a_file_the_application_stands_alone() -> None:
    config = read_config(None)
    assert (config.host, config.port, config.args) == ("127.0.0.1", 8000, {})
    assert config.application["import_path"] == "serve_app:build"


def test_the_file_of_make_serve_is_understood_and_flags_win() -> None:
    config = read_config(ROOT / "serve_config.yaml")
    assert config.args["model"] == "emotion2vec_mini"
    config.override_http(None, 9000)
    config.args = {"model": "other"}
    assert (config.host, config.port) == ("127.0.0.1", 9000)
    [application] = config.document["applications"]
    assert application["args"] == {"model": "other"}
    assert application["route_prefix"] == "/"


def test_the_proxies_log_in_the_form_of_the_application() -> None:
    config = read_config(None)
    config.args = {"log_format": "json"}
    assert config.document["logging_config"]["encoding"] == "JSON"
    config = read_config(ROOT / "serve_config.yaml")
    config.args = {"log_format": "text"}
    assert "encoding" not in config.document["logging_config"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not a YAML file"),
        ("- a", "not a Serve config file"),
        ("applications: []", "no application has the import_path serve_app:build"),
        ("applications: [{import_path: 'x:y'}]", "no application has the import_path"),
        (
            "applications: [{import_path: 'serve_app:build', name: other}]",
            "the application's name must be emotion2vec",
        ),
    ],
)
def test_files_that_are_no_such_config_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(write(tmp_path / "config.yaml", text))


def test_a_taken_port_is_told_before_the_start(listening: int) -> None:
    with pytest.raises(LaunchError, match=rf"^cannot listen on 127\.0\.0\.1 port {listening}: "):
        check_port("127.0.0.1", listening)
    with pytest.raises(LaunchError, match=r"^cannot listen on 192\.0\.2\.1 port 80: "):
        check_port("192.0.2.1", 80)


def test_a_cluster_that_does_not_answer_is_told_before_ray_tries_for_minutes() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(LaunchError, match=f"^no Ray cluster at {address}: Connection refused"):
            check_cluster(address)
    check_cluster("auto")


def test_what_belongs_to_the_nodes_is_refused_with_an_address() -> None:
    config = read_config(None)
    with pytest.raises(LaunchError, match="--proxy is chosen where"):
        LaunchPlan(config, "auto", True).check()
    config.application["deployments"] = [{"name": "Model", "num_replicas": 2}]
    with pytest.raises(LaunchError, match="--address takes only args"):
        LaunchPlan(config, "auto", False).check()


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:8000"), ("::", "http://[::1]:8000"), ("h", "http://h:8000")],
)
def test_the_url_is_one_that_a_client_can_use(host: str, url: str) -> None:
    config = read_config(None)
    config.override_http(host, None)
    assert LaunchPlan(config, None, False).url == url


def test_health_is_a_real_answer(fake_server: str) -> None:
    host, _, port = fake_server.removeprefix("http://").partition(":")
    assert health(host, int(port))
    assert not health("127.0.0.1", 1)


def test_a_model_error_is_told_at_the_first_try() -> None:
    trace = "A replica failed to start with exception. Retrying 2 more time(s). Error:\nray::X\n"
    trace += "    raise ModelError(line)\nengine.errors.ModelError: model.pt is damaged\n"
    assert failure(application(Model=trace)) == "model.pt is damaged"


def test_other_failures_are_told_when_serve_gives_up() -> None:
    trace = "Traceback\n  File x\nValueError: no such thing\nSee the logs."
    assert failure(application(Model=trace)) is None
    told = failure(application("DEPLOY_FAILED", "Deployment failed.", Model=trace))
    assert told == "the application did not start: ValueError: no such thing"
    assert failure(application("DEPLOY_FAILED")) is not None
    assert failure(application()) is None


def test_only_what_really_does_not_fit_is_told() -> None:
    told = without_room(application(Model=ROOM), {"CPU": 1.7})
    assert told == "a replica of Model does not fit: it needs 2 GPU (0 free)"
    # a slow machine says the same while a worker process comes up
    assert without_room(application(Model=ROOM), {"CPU": 1.0, "GPU": 2.0}) is None
    assert without_room(application(Model="slow __init__"), {}) is None


def test_the_first_signal_asks_and_the_second_insists() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        stop = StopSignal()
        stop.install()
        assert not stop.wait(0)
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(0)
        assert not stop.at_once
        signal.raise_signal(signal.SIGINT)
        assert stop.at_once
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_the_console_keeps_stderr_to_itself(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    others = tmp_path / "others"
    with own_console(others) as console:
        console.say("ours")
        os.write(2, b"theirs\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "e2v: ours\nafter\n"
    assert others.read_text() == "theirs\n"
