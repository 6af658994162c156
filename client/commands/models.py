"""`e2v models`: bring a model into the form that loads fast, or look whether it can be served."""

import argparse
import logging
from pathlib import Path

from client.commands import CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`prepare` and `check`."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=argparse.ArgumentParser
    )
    name = "iic/NAME, ORG/NAME (both with an optional @REVISION), or a directory"
    prepare = actions.add_parser("prepare", help="fetch a model and convert it once")
    prepare.add_argument("model", metavar="MODEL", help=name)
    prepare.add_argument("--output", type=Path, metavar="DIR", help="instead of the cache")
    prepare.add_argument(
        "--verify", action="store_true", help="compare it with funasr first; refuse differences"
    )
    check = actions.add_parser("check", help="say in one line why a model cannot be served")
    check.add_argument("model", metavar="MODEL", help=name)
    check.add_argument("--device", default="auto")


def run(options: argparse.Namespace) -> int:
    """Carry out the action; what the engine reports goes to stderr."""
    logging.basicConfig(format="e2v: %(message)s")
    logging.getLogger("engine").setLevel(logging.INFO)
    from engine.errors import ModelError
    from engine.hub import prepare

    try:
        if options.action == "check":
            _check(options.model, options.device)
        else:
            print(prepare(options.model, options.output, options.verify))
    except ModelError as error:
        raise CommandError(str(error)) from None
    return 0


def _check(model: str, device: str) -> None:
    from engine.hub import load_model
    from engine.precision import choose_device

    choose_device(device)
    load_model(model)
