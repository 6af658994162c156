"""Flags from the settings model: one per field, so that names, defaults and help exist once."""

import argparse
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from client.commands import CommandError

PLAIN = (str, int, float)


def add_settings(parser: argparse.ArgumentParser, model: type[BaseSettings]) -> None:
    """A group of flags, `--max-files` for `max_files`; what is not given stays out of the result.

    Ranges are left to the model, whose message then names the limit.
    """
    prefix = model.model_config.get("env_prefix", "")
    group = parser.add_argument_group(
        "settings of the application",
        f"each is also `args:` of a Serve config file and the environment's {prefix}NAME",
    )
    for name, field in model.model_fields.items():
        group.add_argument(
            flag(name),
            dest=name,
            default=argparse.SUPPRESS,
            help=_help(field),
            **_reader(field.annotation),
        )


def flag(name: str) -> str:
    """`max_files` → `--max-files`."""
    return "--" + name.replace("_", "-")


def explicit(options: argparse.Namespace, model: type[BaseSettings]) -> dict[str, Any]:
    """The settings that were given as flags."""
    return {name: value for name, value in vars(options).items() if name in model.model_fields}


def make_settings(model: type[BaseSettings], values: Mapping[str, Any]) -> BaseSettings:
    """The settings, or one line that names each flag that does not fit and the limit."""
    try:
        return model(**values)
    except ValidationError as error:
        raise CommandError("; ".join(_fault(fault) for fault in error.errors())) from None


def _fault(fault: Any) -> str:
    message = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return str(message)
    given = "" if fault["type"] == "missing" else f" (got {fault['input']!r})"
    return f"{flag(str(fault['loc'][0]))}: {message[0].lower()}{message[1:]}{given}"


def _texts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _help(field: FieldInfo) -> str:
    text = (field.description or "").replace("%", "%%")
    return f"{text} (default: {field.default})"


def _reader(annotation: Any) -> dict[str, Any]:
    """How argparse reads a field: choices of a Literal, a switch, a number or text."""
    if get_origin(annotation) in (Union, types.UnionType):
        [annotation] = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) is Literal:
        return {"choices": get_args(annotation)}
    if get_origin(annotation) is tuple:
        return {"type": _texts, "metavar": "TEXT,…"}
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    if annotation in PLAIN:
        metavar = {str: "TEXT", int: "N", float: "X"}[annotation]
        return {"type": annotation, "metavar": metavar}
    raise TypeError(f"a setting of type {annotation} has no flag")
