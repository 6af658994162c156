"""What a deployment is given so that the policy of `cluster.autoscaling` scales it."""

from dataclasses import asdict
from typing import Any

from cluster.autoscaling import SLOW_SECONDS, PolicyConfig

POLICY_PATH = "cluster.autoscaling:AudioWorkPolicy"

REPORT_SECONDS = 0.5
"""How often replicas and handles report; Serve's default of 10 s is too slow."""


def autoscaling_config(
    min_replicas: int, max_replicas: int, config: PolicyConfig | None = None
) -> dict[str, Any]:
    """The `autoscaling_config` of a deployment that this policy scales.

    It begins with one replica also where the minimum is 0, so that a start shows at once
    whether the model can be loaded. Serve warns (`DeprecationWarning`) of `metrics_interval_s`,
    but the environment variables that it names instead have no effect in 2.60 (measured).
    """
    return {
        "metrics_interval_s": REPORT_SECONDS,
        "min_replicas": min_replicas,
        "initial_replicas": max(1, min_replicas),
        "max_replicas": max_replicas,
        "look_back_period_s": SLOW_SECONDS,
        "upscale_delay_s": 0.0,
        "downscale_delay_s": 0.0,
        "policy": {
            "policy_function": POLICY_PATH,
            "policy_kwargs": asdict(config or PolicyConfig()),
        },
    }
