"""The routes that score audio: our own and the Hugging Face shape."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from engine.errors import EmotionError
from serve_app.bodies import Body, close_bodies
from serve_app.formats import render
from serve_app.http.body import AudioRequest, declared_bytes, read_audio_request
from serve_app.http.documentation import AUDIO_BODY, HUGGING_FACE_BODY
from serve_app.http.request_id import request_id
from serve_app.http.sse import EventStream, event_stream
from serve_app.parameters import Parameters, parse_parameters
from serve_app.results import error_object
from serve_app.timings import Timings

if TYPE_CHECKING:
    from serve_app.events import Done
    from serve_app.service import EmotionService


_Shape = Callable[[AudioRequest, Request, Timings], Awaitable[Response]]


def emotions_router(service: "EmotionService") -> APIRouter:
    """`POST /v1/audio/emotions`, `/predict`, `/`."""
    router = APIRouter(tags=["emotions"])
    calls = _Calls(service)

    @router.post("/v1/audio/emotions", summary="Score audio", openapi_extra=AUDIO_BODY)
    async def emotions(request: Request) -> Response:
        return await calls.answer(request, calls.emotions)

    @router.post("/predict", summary="Hugging Face shape", openapi_extra=HUGGING_FACE_BODY)
    @router.post("/", include_in_schema=False)
    async def predict(request: Request) -> Response:
        return await calls.answer(request, calls.hugging_face)

    return router


class _Calls:
    """One request from its body to its response."""

    def __init__(self, service: "EmotionService") -> None:
        self._service = service

    async def answer(self, request: Request, shape: _Shape) -> Response:
        """Admit, read, and answer in the given shape."""
        service, timings = self._service, Timings()
        settings = service.settings
        await service.known_info()
        with ExitStack() as held:
            try:
                admitted = service.admission.request(declared_bytes(request))
                reservation = held.enter_context(admitted)
            except EmotionError as error:
                service.metrics.answers.inc(tags={"result": error.error_type})
                raise
            with service.admission.read():
                audio = await read_audio_request(
                    request, settings.max_body_bytes, settings.max_files, reservation.cover
                )
            held.callback(close_bodies, audio.bodies)
            response = await shape(audio, request, timings)
            if isinstance(response, EventStream):
                # it is in the house, and needs its body, until its last event
                response.held = held.pop_all()
        return response

    async def emotions(self, audio: AudioRequest, request: Request, timings: Timings) -> Response:
        """Our own shape."""
        parameters = parse_parameters(audio.parameters)
        if parameters.stream:
            if len(audio.bodies) != 1:
                message = f"stream takes one file; the request holds {len(audio.bodies)}."
                raise EmotionError("invalid_request", message)
            return await event_stream(self._service, audio.bodies[0], parameters, request, timings)
        if not audio.is_list:
            done = await self._service.analyze(
                audio.bodies[0], parameters, request_id(request), timings
            )
            return await _response(done.result, parameters, timings, done.seconds)
        answers = await self._analyze_all(audio.bodies, parameters, request, timings)
        items = [
            item for i, answer in enumerate(answers) for item in _list_items(answer, i, request)
        ]
        value = {"object": "list", "data": items}
        return await _response(value, parameters, timings, _total_seconds(answers))

    async def hugging_face(
        self, audio: AudioRequest, request: Request, timings: Timings
    ) -> Response:
        """A bare list of labels and scores, or a list of lists."""
        parameters = parse_parameters(_hugging_face_parameters(audio.parameters))
        if parameters.stream or parameters.channels == "split":
            message = "This route gives one list of scores per file: no stream, no channels=split."
            raise EmotionError("invalid_request", message)
        if parameters.response_format != "json":
            raise EmotionError("invalid_request", "This route answers in JSON only.")
        answers = await self._analyze_all(audio.bodies, parameters, request, timings)
        for answer in answers:
            # this shape has no place for an item's error, so the first one is the answer
            if isinstance(answer, EmotionError):
                raise answer
        lists = [a.result.get("scores", []) for a in answers if not isinstance(a, EmotionError)]
        value = lists if audio.is_list else lists[0]
        return await _response(value, parameters, timings, _total_seconds(answers))

    async def _analyze_all(
        self, bodies: list[Body], parameters: Parameters, request: Request, timings: Timings
    ) -> "list[Done | EmotionError]":
        async def one(body: Body) -> "Done | EmotionError":
            try:
                return await self._service.analyze(body, parameters, request_id(request), timings)
            except EmotionError as error:
                return error

        answers = await asyncio.gather(*(one(body) for body in bodies))
        overloaded = [
            a for a in answers if isinstance(a, EmotionError) and a.error_type == "overloaded"
        ]
        if overloaded and len(overloaded) == len(answers):
            raise overloaded[0]
        return answers


def _list_items(
    answer: "Done | EmotionError", index: int, request: Request
) -> list[dict[str, Any]]:
    if isinstance(answer, EmotionError):
        return [{"index": index, **error_object(answer, request_id(request))}]
    if answer.result["object"] == "list":
        return [{"index": index, **item} for item in answer.result["data"]]
    return [{"index": index, **answer.result}]


def _total_seconds(answers: "list[Done | EmotionError]") -> float:
    return sum(a.seconds for a in answers if not isinstance(a, EmotionError))


def _hugging_face_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    # clients send what they leave open as null
    chosen = {name: value for name, value in parameters.items() if value is not None}
    function = chosen.pop("function_to_apply", "softmax")
    if function != "softmax":
        message = f"Parameter 'function_to_apply' is {str(function)[:50]!r}; it can be softmax."
        raise EmotionError("invalid_request", message)
    return chosen


async def _response(
    value: Any, parameters: Parameters, timings: Timings, seconds: float
) -> Response:
    start = parameters.start or 0.0
    if parameters.granularity == "frame" or parameters.response_format != "json":
        # an hour of frames takes long enough to write to hold up everybody else
        content, kind = await asyncio.to_thread(render, value, parameters.response_format, start)
    else:
        content, kind = render(value, parameters.response_format, start)
    headers = {"Server-Timing": timings.header(), "x-audio-duration": f"{seconds:.6f}"}
    return Response(content, headers=headers, media_type=kind)
