"""The application: settings, HTTP, results, and the builder that Ray Serve imports.

`serve_app:build` is imported on first use, so that reading the settings costs neither Ray
nor torch.
"""

from typing import Any

__all__ = ["build"]


def __getattr__(name: str) -> Any:
    if name == "build":
        from serve_app.builder import build

        return build
    raise AttributeError(f"module 'serve_app' has no attribute {name!r}")
