"""`e2v serve`: the server on this machine's own Ray, or the application on a Ray cluster."""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from client.commands import CommandError
from client.commands.settings_flags import add_settings, explicit, make_settings
from serve_app.launch import LaunchPlan, launch
from serve_app.launch_config import ConfigError, read_config
from serve_app.launch_network import LaunchError
from serve_app.settings import Settings
from serve_app.tracing import tracing_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the process, then one for each setting of the application."""
    process = parser.add_argument_group("process")
    process.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    process.add_argument(
        "--port", type=_port, metavar="N", help="port to listen on (default: 8000)"
    )
    process.add_argument(
        "--address", help="an existing Ray cluster; without it a local Ray is started and stopped"
    )
    process.add_argument(
        "--proxy",
        choices=("default", "haproxy"),
        default="default",
        help="haproxy is faster, and opens ports 8404 and 9101 on all interfaces",
    )
    process.add_argument(
        "--trace-ratio",
        type=_ratio,
        metavar="X",
        help="share of requests whose OpenTelemetry trace goes to OTEL_EXPORTER_OTLP_ENDPOINT, "
        "0 to 1 (default: 0)",
    )
    process.add_argument(
        "--config", type=Path, metavar="FILE", help="Serve config file; flags win over it"
    )
    add_settings(parser, Settings)


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    try:
        config = read_config(options.config)
        config.override_http(options.host, options.port)
        if options.trace_ratio is not None:
            config.document["tracing_config"] = tracing_config(options.trace_ratio)
        settings = make_settings(Settings, {**config.args, **explicit(options, Settings)})
        config.args = settings.model_dump(exclude_unset=True)
        plan = LaunchPlan(config, options.address, options.proxy == "haproxy")
        plan.check()
        if options.address is None:
            check_model(settings)
        return launch(plan)
    except (ConfigError, LaunchError) as error:
        raise CommandError(str(error)) from None


def _ratio(text: str) -> float:
    ratio = float(text)
    if not 0 <= ratio <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return ratio


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{port} is not between 1 and 65535")
    return port


def check_model(settings: Any) -> None:
    """Refuse a model that cannot be loaded before anything is started.

    In a process of its own, so that the launcher does not keep torch in memory.
    """
    command = [sys.executable, "-m", "client.cli", "models", "check", settings.model]
    checked = subprocess.run([*command, "--device", settings.device], stdout=subprocess.DEVNULL)
    if checked.returncode:
        raise SystemExit(1)
