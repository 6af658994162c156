"""Requests that are nearly right: damaged audio, odd parameters, broken JSON and forms."""

import base64
import json
from typing import Any
from urllib.parse import urlencode

from asgi_caller import Call
from hypothesis import strategies as st
from sound_files import encode, voice, wav

from serve_app.parameters import Parameters

SOUND = voice(0.6)
BODIES = [
    wav(SOUND),
    wav(SOUND.astype("f4") / 32768),
    encode(SOUND, "mp3", "libmp3lame"),
    encode(SOUND, "flac", "flac"),
    encode(voice(0.6, 48_000), "webm", "libopus", 48_000),
    encode(voice(0.6, 48_000), "ogg", "libopus", 48_000),
    encode(SOUND, "mp4", "aac"),
    encode(SOUND, "adts", "aac"),
    encode(SOUND, "mpegts", "aac"),
    encode(SOUND, "aiff", "pcm_s16be"),
    b"",
    b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n",
    b"ffconcat version 1.0\nfile ref.wav\n",
    b"ID3\x04\x00\x00\x00\x00\x00\x00" * 500,
    b"\xff" * 20_000,
]
GET_PATHS = ("/", "/live", "/health", "/info", "/v1/models", "/docs", "/openapi.json")
POST_PATHS = ("/v1/audio/emotions", "/predict", "/")
ODD_PATHS = ("/nowhere", "/health/", "/v1/audio/emotions/", "//", "/v1/../etc", "/ü\u2028")
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW")
NAMES = (*Parameters.model_fields, "function_to_apply", "inputs", "x", "", "__proto__", "ünï")
WORDS = (
    *("utterance", "segment", "frame", "window", "speech", "mix", "split", "none", "float"),
    *("base64", "pcm_s16le", "pcm_f32le", "json", "csv", "vtt", "textgrid", "ndjson", "true"),
    *("0", "1", "2", "0.5", "3", "30", "-1", "1e306", "nan", "inf", "1e-320", "", " ", "angry"),
    *("angry,happy", "angry,,", "16000", "8000", "9" * 5000, "ｎａｎ", "٣", "0x10", "\x00", "'"),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A body with up to four of its parts overwritten, cut, removed or doubled."""
    body = bytearray(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(0, min(len(body), draw(st.sampled_from([64, 4096]))) - 1)))
        match draw(st.sampled_from(["set", "cut", "remove", "double", "splice"])):
            case "set":
                new = draw(st.binary(min_size=1, max_size=4))
                body[at : at + len(new)] = new
            case "cut":
                del body[max(16, at) :]
            case "remove":
                del body[at : at + draw(st.integers(1, 64))]
            case "double":
                body[at:at] = body[at : at + draw(st.integers(1, 64))]
            case "splice":
                body[at:] = draw(st.sampled_from(BODIES))[at:]
    return bytes(body)


TEXT_VALUES = st.sampled_from(WORDS) | st.text(max_size=8)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT_VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT_VALUES, inner, max_size=3),
    max_leaves=5,
)
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), TEXT_VALUES), max_size=4)
TYPES = st.sampled_from(
    [b"", b"audio/wav", b"application/octet-stream", b"text/html", b"a/b+json", b"\xff;;", b"/"]
)
ODD_HEADERS = st.lists(
    st.sampled_from(
        [
            (b"content-length", b"\xb2"),
            (b"content-length", b"-1"),
            (b"content-length", b"9" * 30),
            (b"content-length", b"3"),
            (b"host", b"["),
            (b"host", b"a b\xff"),
            (b"accept", b"\xff"),
            (b"x-request-id", b"\xe4" * 300),
            (b"authorization", b"Bearer \xff"),
            (b"content-encoding", b"gzip"),
            (b"range", b"bytes=1-"),
        ]
    ),
    max_size=2,
)


@st.composite
def chunks(draw: st.DrawFn, body: bytes) -> list[bytes]:
    """The body in one to three messages."""
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=2)))
    ends = [0, *cuts, len(body)]
    return [body[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]


@st.composite
def json_bodies(draw: st.DrawFn) -> bytes:
    """`{"inputs": …, "parameters": …}`, or something like it, whole or cut."""
    text = st.builds(lambda body: base64.b64encode(body).decode(), damaged())
    inputs = draw(text | st.lists(text | JSON_VALUES, max_size=5) | JSON_VALUES)
    names = st.sampled_from(NAMES)
    value: Any = {"inputs": inputs}
    if draw(st.booleans()):
        parameters = st.dictionaries(names, TEXT_VALUES | JSON_VALUES, max_size=4)
        value["parameters"] = draw(parameters | JSON_VALUES)
    if draw(st.integers(0, 9)) == 0:
        value = draw(JSON_VALUES)
    written = json.dumps(value).encode()
    return (
        written[: draw(st.integers(0, len(written)))] if draw(st.integers(0, 9)) == 0 else written
    )


CHARSETS = (b"", b"; charset=utf-7", b"; charset=unicode_escape", b"; charset=undefined", b";x=")
DISPOSITIONS = (
    b'form-data; name="file"; filename="a.wav"',
    b'form-data; name="file"; filename="../../etc/passwd"',
    b'form-data; name="file"',
    b'form-data; name="document"; filename="a"',
    b"form-data; name*=utf-8''file; filename*=utf-8''%00",
    b"form-data",
    b"",
)


@st.composite
def forms(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Content type and body of a form, with broken parts now and then."""
    boundary = draw(st.sampled_from([b"x", b"-" * 40, b"a b"]))
    parts = []
    for _ in range(draw(st.integers(0, 5))):
        disposition, content = draw(st.sampled_from(DISPOSITIONS)), draw(damaged())
        if draw(st.booleans()):
            name = draw(st.sampled_from(NAMES)).encode()
            disposition = b'form-data; name="' + name + b'"'
            content = draw(TEXT_VALUES | st.just("+2AA-") | st.just("\\ud800")).encode()
        if draw(st.integers(0, 3)):
            disposition, content = DISPOSITIONS[0], draw(damaged())
        parts.append(
            b"--" + boundary + b"\r\nContent-Disposition: " + disposition + b"\r\n\r\n"
            + content + b"\r\n"
        )  # fmt: skip
    body = b"".join(parts) + b"--" + boundary + b"--\r\n"
    if draw(st.integers(0, 5)) == 0:
        body = body[: draw(st.integers(0, len(body)))]
    kind = b"multipart/form-data; boundary=" + boundary + draw(st.sampled_from(CHARSETS))
    return (b"multipart/form-data" if draw(st.integers(0, 9)) == 0 else kind), body


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """A request to any route."""
    match draw(st.sampled_from(["raw", "raw", "json", "form", "odd"])):
        case "raw":
            kind, body = draw(TYPES), draw(damaged())
        case "json":
            kind, body = b"application/json", draw(json_bodies())
        case "form":
            kind, body = draw(forms())
        case _:
            paths = st.sampled_from(GET_PATHS + POST_PATHS + ODD_PATHS)
            return Call(
                method=draw(st.sampled_from(METHODS)),
                path=draw(paths),
                query=urlencode(draw(PAIRS)).encode(),
                headers=draw(ODD_HEADERS),
                chunks=[draw(damaged())],
            )
    query = urlencode(draw(PAIRS)).encode() + draw(st.sampled_from([b"", b"", b"&%ff=%", b"&a"]))
    return Call(
        path=draw(st.sampled_from(POST_PATHS)),
        query=query,
        headers=[(b"content-type", kind), *draw(ODD_HEADERS)],
        chunks=draw(chunks(body)),
    )
