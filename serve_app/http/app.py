"""The ASGI application: routes, errors, documentation."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import FastAPI

from serve_app.http.emotions import emotions_router
from serve_app.http.errors import install_error_handlers
from serve_app.http.health import health_router

if TYPE_CHECKING:
    from serve_app.service import EmotionService


def build_http(service: "EmotionService") -> FastAPI:
    """Routes over `service`; testable without Ray on a service with a fake graph."""
    app = FastAPI(
        title="Emotion2Vec on Ray Serve",
        version=version("emotion2vec-serve"),
        description="The emotion of speech: nine emotions, a frame timeline, embeddings.",
        redoc_url=None,
    )
    install_error_handlers(app)
    app.include_router(emotions_router(service))
    app.include_router(health_router(service))
    return app
