"""The ASGI application: routes, errors, documentation, and what stands in front of them."""

import logging
import os
from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from serve_app.http.access_log import AccessLogMiddleware, write_json_to_streams
from serve_app.http.auth import ApiKeyMiddleware, cors_options
from serve_app.http.emotions import emotions_router
from serve_app.http.errors import install_error_handlers
from serve_app.http.health import health_router
from serve_app.http.keys import keys_from
from serve_app.http.models import models_router
from serve_app.http.pace import PaceMiddleware

if TYPE_CHECKING:
    from serve_app.service import EmotionService


def build_http(service: "EmotionService") -> FastAPI:
    """Routes over `service`; testable without Ray on a service with a fake graph."""
    app = FastAPI(
        title="Emotion2Vec on Ray Serve",
        version=version("emotion2vec-serve"),
        description="The emotion of speech: nine emotions, a frame timeline, embeddings.",
        redoc_url=None,
        # a path that is not there is a 404 in our own words, not a way to another host
        redirect_slashes=False,
    )
    settings = service.settings
    if settings.log_format == "json":
        write_json_to_streams(logging.getLogger("ray.serve"))
    install_error_handlers(app)
    app.include_router(emotions_router(service))
    app.include_router(models_router(service))
    app.include_router(health_router(service))
    # secrets come by environment or file only: `args` are shown by `serve status`
    keys = keys_from(settings.api_keys_file, os.environ)
    # the last one added is the first to see a request
    app.add_middleware(ApiKeyMiddleware, keys=keys)
    app.add_middleware(PaceMiddleware, pace=service.admission.pace)
    if options := cors_options(settings.cors_origins):
        app.add_middleware(CORSMiddleware, **options)
    app.add_middleware(AccessLogMiddleware, log_format=settings.log_format)
    return app
