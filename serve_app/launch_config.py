"""What is to be served: a Serve config file, or the same document made without one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from serve_app.settings import APP_NAME

IMPORT_PATH = "serve_app:build"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000


class ConfigError(Exception):
    """A config file that cannot be used; the message is one line."""


@dataclass(slots=True)
class LaunchConfig:
    """A document in the form of Serve's config file.

    Attributes:
        document: the whole of it, handed to Serve as it is.
        application: the part of it that is this application.
    """

    document: dict[str, Any]
    application: dict[str, Any]

    @property
    def args(self) -> dict[str, Any]:
        """Settings of the application."""
        args: dict[str, Any] = self.application.get("args") or {}
        return args

    @args.setter
    def args(self, args: dict[str, Any]) -> None:
        self.application["args"] = args
        if args.get("log_format") == "json":
            # the proxies are Serve's: they have no settings of ours
            logging = self.document.setdefault("logging_config", {})
            logging.setdefault("encoding", "JSON")

    @property
    def host(self) -> str:
        """Address to listen on."""
        return str(self._http["host"])

    @property
    def port(self) -> int:
        """Port to listen on."""
        return int(self._http["port"])

    def override_http(self, host: str | None, port: int | None) -> None:
        """Flags win over the file."""
        if host is not None:
            self._http["host"] = host
        if port is not None:
            self._http["port"] = port

    @property
    def _http(self) -> dict[str, Any]:
        http: dict[str, Any] = self.document["http_options"]
        return http


def read_config(path: Path | None) -> LaunchConfig:
    """The config file at `path`, or the plain document with this application alone.

    Raises:
        ConfigError: the file cannot be read or does not hold this application.
    """
    document = _default() if path is None else _read(path)
    document["http_options"] = {
        "host": DEFAULT_HOST,
        "port": DEFAULT_PORT,
        **(document.get("http_options") or {}),
    }
    applications = document.get("applications")
    for application in applications if isinstance(applications, list) else []:
        if isinstance(application, dict) and application.get("import_path") == IMPORT_PATH:
            if application.setdefault("name", APP_NAME) != APP_NAME:
                raise ConfigError(f"{path}: the application's name must be {APP_NAME}")
            return LaunchConfig(document, application)
    raise ConfigError(f"{path}: no application has the import_path {IMPORT_PATH}")


def _default() -> dict[str, Any]:
    application = {"name": APP_NAME, "route_prefix": "/", "import_path": IMPORT_PATH}
    quiet = {"enable_access_log": False, "log_level": "WARNING"}
    return {
        "proxy_location": "EveryNode",
        "logging_config": quiet,
        "applications": [application],
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{path}: not a YAML file") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a Serve config file")
    return document
