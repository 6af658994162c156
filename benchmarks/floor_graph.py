"""An empty graph of three deployments: what Ray Serve itself costs, with the same payload.

It moves what the real graph moves (a body in, the samples to the second deployment and back,
the samples to the third, a small answer) and computes nothing.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray import serve
from ray.serve import Application
from starlette.requests import Request

from deployments.wire import IN_THE_CALL
from serve_app.ray_environment import REPLICA_ENVIRONMENT

WAV_HEAD = 44
OPTIONS: dict[str, Any] = {
    "max_ongoing_requests": 100_000,
    "ray_actor_options": {"num_cpus": 0.1, "runtime_env": {"env_vars": REPLICA_ENVIRONMENT}},
}
"""As in the application, Ray's own settings included."""


@serve.deployment
class Second:
    """Hands samples back."""

    async def run(self, samples: NDArray[np.int16]) -> NDArray[np.int16]:
        """Samples → samples."""
        return samples


@serve.deployment
class Third:
    """Takes samples and answers little."""

    async def run(self, samples: NDArray[np.int16]) -> list[float]:
        """Samples → nine numbers."""
        return [float(samples.size)] * 9


@serve.deployment
class First:
    """HTTP in, the other two behind it."""

    def __init__(self, second: Any, third: Any) -> None:
        self._second = second.options(**IN_THE_CALL)
        self._third = third.options(**IN_THE_CALL)

    async def __call__(self, request: Request) -> dict[str, Any]:
        """One body through the graph."""
        body = await request.body()
        samples = np.frombuffer(body[WAV_HEAD : len(body) - len(body) % 2], np.int16)
        samples = await self._second.run.remote(samples)
        return {"scores": await self._third.run.remote(samples)}


def build_floor() -> Application:
    """The empty graph, placed as the real one is."""
    second = Second.options(**OPTIONS).bind()  # type: ignore[attr-defined]
    third = Third.options(**OPTIONS).bind()  # type: ignore[attr-defined]
    application: Application = First.options(**OPTIONS).bind(second, third)  # type: ignore[attr-defined]
    return application
