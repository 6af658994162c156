"""`GET /v1/models`: which model answers, in the shape that OpenAI's clients list models by."""

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

if TYPE_CHECKING:
    from serve_app.service import EmotionService


def models_router(service: "EmotionService") -> APIRouter:
    """`/v1/models`."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/models", summary="The model that answers")
    async def models() -> dict[str, Any]:
        info = await service.info()
        # `created` is required by the shape; a revision has no time, so it is the epoch
        model = {"id": info.model, "object": "model", "created": 0, "owned_by": "emotion2vec"}
        return {"object": "list", "data": [{**model, "revision": info.revision}]}

    return router
