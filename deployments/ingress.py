"""The ingress deployment: HTTP and handle calls in, the service behind them injected."""

from collections.abc import Callable
from typing import Any, Protocol

from ray import serve

from deployments.cache import ServeCache
from deployments.graph import Graph
from deployments.serve_graph import ServeGraph


class Service(Protocol):
    """What the ingress runs: decoding, parameters, results (see `serve_app.service`)."""

    def asgi(self) -> Any:
        """The ASGI application."""

    def start(self) -> None:
        """Start helper processes."""

    async def predict(self, audio: Any, sample_rate: int | None, parameters: dict[str, Any]) -> Any:
        """Answer a handle call with a plain dict, errors included."""

    async def close(self) -> None:
        """Stop what `start` started."""


@serve.deployment
@serve.ingress()
class Ingress:
    """CPU only: admission, decoding and answers; the model's work is behind `graph`."""

    def __init__(
        self,
        create_service: Callable[[Graph, Any], Service],
        timeout_seconds: float,
        preprocess: Any,
        model: Any,
        cache: Any,
    ) -> None:
        graph = ServeGraph(preprocess, model, timeout_seconds)
        self._service = create_service(graph, cache and ServeCache(cache))
        self._service.start()

    def __serve_build_asgi_app__(self) -> Any:
        """Called by Serve once the constructor has run."""
        return self._service.asgi()

    async def predict(self, audio: Any, sample_rate: int | None = None, **parameters: Any) -> Any:
        """Handle call: encoded bytes, or float32 samples [n] and their sample rate.

        Returns:
            The dict that HTTP would answer; errors as a dict with `error`, `error_type` and
            `status`, so that a caller without this package can read them.
        """
        return await self._service.predict(audio, sample_rate, parameters)

    async def __del__(self) -> None:
        """Called by Serve when the replica stops."""
        await self._service.close()
