"""The same engine in LitServe: the plain server that somebody would write instead.

    python -m benchmarks.litserve_server MODEL PORT

It is given what helps it: the packed batch of the engine, one file as a form field, decoding in
its worker.
"""

import importlib
import logging
import sys
from typing import Any

from fastapi import Request

litserve: Any = importlib.import_module("litserve")

MAX_BATCH = 8
BATCH_TIMEOUT_SECONDS = 0.005


class EmotionApi(litserve.LitAPI):  # type: ignore[misc]
    """LitServe's four hooks around the engine."""

    model = ""

    def setup(self, device: Any) -> None:
        """Load and warm the engine, with all cores as our own replica does."""
        import torch

        from benchmarks.hearing import warmed_engine
        from engine.threads import cpu_threads

        torch.set_num_threads(cpu_threads(0))
        self.engine = warmed_engine(self.model)

    def decode_request(self, request: Request) -> Any:
        """The uploaded file, decoded and resampled: float32 [n] at 16 kHz."""
        from benchmarks.hearing import waves_of

        return waves_of(request["file"].file.read())[0]

    def batch(self, inputs: list[Any]) -> list[Any]:
        """Clips of any lengths: the engine packs them."""
        return inputs

    def predict(self, waves: list[Any]) -> list[Any]:
        """One packed pass."""
        return self.engine.infer(waves)

    def unbatch(self, output: list[Any]) -> list[Any]:
        """Already one result per request."""
        return output

    def encode_response(self, output: Any) -> dict[str, Any]:
        """Label and scores."""
        return {"label": output.label, "scores": output.scores}


def main(model: str, port: int) -> None:
    """Serve on 127.0.0.1 until ended."""
    logging.getLogger().setLevel(logging.ERROR)
    api = EmotionApi(max_batch_size=MAX_BATCH, batch_timeout=BATCH_TIMEOUT_SECONDS)
    api.model = model
    server = litserve.LitServer(api, accelerator="auto", timeout=False)
    server.run(
        host="127.0.0.1",
        port=port,
        generate_client_file=False,
        log_level="error",
        num_api_servers=1,
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
