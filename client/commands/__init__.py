"""Subcommands of `e2v`: each module has `add_arguments(parser)` and `run(options) -> int`."""


class CommandError(Exception):
    """An expected failure; its message is the one line that the user reads."""
