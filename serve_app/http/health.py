"""Is it alive, is it ready, what is it."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from engine.labels import label_name
from engine.passes import MODEL_RATE
from serve_app.results import to_json

if TYPE_CHECKING:
    from serve_app.service import EmotionService


def health_router(service: "EmotionService") -> APIRouter:
    """`/live`, `/health` (also `/`), `/info`."""
    router = APIRouter(tags=["health"])

    @router.get("/live", summary="The process answers")
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @router.get("/", include_in_schema=False)
    @router.get("/health", summary="A model replica is loaded and warm")
    async def health() -> dict[str, str]:
        await service.ready()
        return {"status": "ready"}

    @router.get("/info", summary="The model, its labels and the limits in force")
    async def info(request: Request) -> Response:
        return Response(to_json(await _info(service)), media_type="application/json")

    return router


async def _info(service: "EmotionService") -> dict[str, Any]:
    model = await service.info()
    settings = service.settings
    return {
        "model": model.model,
        "revision": model.revision,
        "dtype": model.dtype,
        "device": model.device,
        "compiled": model.compiled,
        "labels": [label_name(token) for token in model.labels],
        "sample_rate": MODEL_RATE,
        "embedding_size": model.embedding_size,
        "frame_rate": 1 / model.frame_seconds,
        "max_batch_frames": model.max_batch_frames,
        "limits": {
            "max_body_bytes": settings.max_body_bytes,
            "max_files": settings.max_files,
            "max_audio_seconds": settings.max_audio_seconds,
            "min_sample_rate_hz": settings.min_sample_rate_hz,
            "max_sample_rate_hz": settings.max_sample_rate_hz,
            "max_channels": settings.max_channels,
            "pass_seconds": settings.pass_seconds,
        },
        "versions": {"emotion2vec-serve": version("emotion2vec-serve"), **model.versions},
    }
