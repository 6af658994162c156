"""The routes that score audio: our own and the Hugging Face shape."""

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from engine.errors import EmotionError
from serve_app.http.body import AudioRequest, Body, read_audio_request
from serve_app.http.documentation import AUDIO_BODY, HUGGING_FACE_BODY
from serve_app.http.request_id import request_id
from serve_app.parameters import Parameters, parse_parameters
from serve_app.results import error_object, to_json
from serve_app.timings import Timings

if TYPE_CHECKING:
    from serve_app.service import Answer, EmotionService


def emotions_router(service: "EmotionService") -> APIRouter:
    """`POST /v1/audio/emotions`, `/predict`, `/`."""
    router = APIRouter(tags=["emotions"])

    @router.post("/v1/audio/emotions", summary="Score audio", openapi_extra=AUDIO_BODY)
    async def emotions(request: Request) -> Response:
        audio, timings = await _read(service, request)
        parameters = parse_parameters(audio.parameters)
        if not audio.is_list:
            answer = await service.analyze(
                audio.bodies[0], parameters, request_id(request), timings
            )
            return _response(answer.result, timings, answer.duration)
        answers = await _analyze_all(service, audio.bodies, parameters, request, timings)
        items = [_list_item(answer, i, request) for i, answer in enumerate(answers)]
        return _response({"object": "list", "data": items}, timings, _total_seconds(answers))

    @router.post("/predict", summary="Hugging Face shape", openapi_extra=HUGGING_FACE_BODY)
    @router.post("/", include_in_schema=False)
    async def predict(request: Request) -> Response:
        audio, timings = await _read(service, request)
        parameters = parse_parameters(_hugging_face_parameters(audio.parameters))
        answers = await _analyze_all(service, audio.bodies, parameters, request, timings)
        for answer in answers:
            # this shape has no place for an item's error, so the first one is the answer
            if isinstance(answer, EmotionError):
                raise answer
        lists = [a.result.get("scores", []) for a in answers if not isinstance(a, EmotionError)]
        return _response(lists if audio.is_list else lists[0], timings, _total_seconds(answers))

    return router


async def _read(service: "EmotionService", request: Request) -> tuple[AudioRequest, Timings]:
    timings = Timings()
    settings = service.settings
    audio = await read_audio_request(request, settings.max_body_bytes, settings.max_files)
    return audio, timings


async def _analyze_all(
    service: "EmotionService",
    bodies: list[Body],
    parameters: Parameters,
    request: Request,
    timings: Timings,
) -> "list[Answer | EmotionError]":
    async def one(body: Body) -> "Answer | EmotionError":
        try:
            return await service.analyze(body, parameters, request_id(request), timings)
        except EmotionError as error:
            return error

    return await asyncio.gather(*(one(body) for body in bodies))


def _list_item(answer: "Answer | EmotionError", index: int, request: Request) -> dict[str, Any]:
    if isinstance(answer, EmotionError):
        return {"index": index, **error_object(answer, request_id(request))}
    return {"index": index, **answer.result}


def _total_seconds(answers: "list[Answer | EmotionError]") -> float:
    return sum(a.duration for a in answers if not isinstance(a, EmotionError))


def _hugging_face_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    chosen = dict(parameters)
    function = chosen.pop("function_to_apply", None) or "softmax"
    if function != "softmax":
        raise EmotionError(
            "invalid_request", f"function_to_apply is {str(function)[:50]!r}, it can be softmax"
        )
    if chosen.get("top_k", 0) is None:
        del chosen["top_k"]
    return chosen


def _response(value: Any, timings: Timings, seconds: float) -> Response:
    headers = {"Server-Timing": timings.header(), "x-audio-duration": f"{seconds:.6f}"}
    return Response(to_json(value), headers=headers, media_type="application/json")
