"""`e2v predict`: files to a running server, one JSON object per line."""

import argparse
import json
import sys
from typing import Any

from client.client import DEFAULT_URL, Client
from client.errors import ApiError, ConnectionFailed

STANDARD_INPUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command; parameters are spelled as in the HTTP API."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="audio file; - is stdin")
    parser.add_argument("--url", default=DEFAULT_URL, help="server (default: %(default)s)")
    parser.add_argument("--granularity", choices=("utterance", "frame"))
    parser.add_argument("--top-k", type=int, metavar="N", help="only the N likeliest emotions")
    parser.add_argument("--embeddings", choices=("none", "utterance", "frame"))


def run(options: argparse.Namespace) -> int:
    """One row per file, errors included; 1 if any failed."""
    parameters = {name: getattr(options, name) for name in ("granularity", "top_k", "embeddings")}
    lost: ConnectionFailed | None = None
    failed = False
    with Client(options.url) as client:
        for file in options.files:
            try:
                # without a connection the other files would only wait in vain
                row = _error_row(lost) if lost else _predict(client, file, parameters)
            except ApiError as error:
                lost = error if isinstance(error, ConnectionFailed) else None
                row = _error_row(error)
            except OSError as error:
                row = {"error": f"cannot be read: {error.strerror}", "error_type": "unreadable"}
            if "error" in row:
                failed = True
                print(f"e2v: {file}: {row['error']}", file=sys.stderr)
            print(json.dumps({"file": file, **row}, ensure_ascii=False), flush=True)
    return int(failed)


def _predict(client: Client, file: str, parameters: dict[str, Any]) -> dict[str, Any]:
    source = sys.stdin.buffer if file == STANDARD_INPUT else file
    return client.predict(source, **parameters).raw


def _error_row(error: ApiError) -> dict[str, Any]:
    row = {"error": error.message, "error_type": error.error_type, "status": error.status}
    return {name: value for name, value in row.items() if value is not None}
