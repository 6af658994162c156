"""The `e2v` command; each subcommand is a module of `client.commands`, imported when it is used."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from client.commands import CommandError

COMMANDS = {
    "serve": "start the server on this machine, or put it on a Ray cluster",
    "predict": "emotions of audio files, one JSON object per line",
    "models": "prepare and check models",
    "info": "what a server, or this machine, runs",
}


class _LazyParser(argparse.ArgumentParser):
    """A subcommand's parser that asks its module for arguments only when it is chosen."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        name = self.prog.rpartition(" ")[2]
        module = importlib.import_module(f"client.commands.{name}")
        module.add_arguments(self)
        self.set_defaults(run=module.run)
        return super().parse_known_args(args, namespace)


def build_parser() -> argparse.ArgumentParser:
    """Parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="e2v", description="Speech emotion recognition on Ray Serve.", allow_abbrev=False
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_LazyParser
    )
    for name, text in COMMANDS.items():
        commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; expected failures are one line on stderr."""
    options = build_parser().parse_args(argv)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        print(f"e2v: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # whoever read the results has gone; the interpreter's own flush must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
