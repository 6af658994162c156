"""Every route under nearly right requests: never 5xx, always our error body, in time."""

import pytest
from asgi_caller import Asgi, Call, check
from hypothesis import HealthCheck, given, settings
from strategies import calls

QUIET = settings(
    max_examples=250,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
WRONG_FORM = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n--x--\r\n'
FILE_PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n1\r\n'
FORM = b"multipart/form-data; boundary=x; charset="


def judge(asgi: Asgi, call: Call) -> None:
    """Send it; afterwards nothing may be counted as in the house."""
    check(asgi(call))
    admission = asgi.service.admission
    assert (admission.requests, admission.bytes_held) == (0, 0)
    assert abs(admission.audio_seconds) < 1e-6


@QUIET
@given(call=calls())
def test_any_request_gets_an_answer(asgi: Asgi, call: Call) -> None:
    judge(asgi, call)


@pytest.mark.slow
def test_ten_thousand_requests_get_an_answer(asgi: Asgi) -> None:
    @settings(QUIET, max_examples=10_000, derandomize=False)
    @given(call=calls())
    def run(call: Call) -> None:
        judge(asgi, call)

    run()


FOUND = {
    "content length of a superscript digit": Call(headers=[(b"content-length", b"\xb2")]),
    "surrogate in a field's name": Call(
        headers=[(b"content-type", FORM + b"unicode_escape")],
        chunks=[FILE_PART, WRONG_FORM % (b"\\ud800", b"", b"1")],
    ),
    "surrogate in a field's value": Call(
        headers=[(b"content-type", FORM + b"utf-7")],
        chunks=[FILE_PART, WRONG_FORM % (b"top_k", b"", b"+2AA-")],
    ),
    "surrogate in a file's field": Call(
        headers=[(b"content-type", FORM + b"utf-7")],
        chunks=[WRONG_FORM % (b"+2AA-", b'; filename="a"', b"1")],
    ),
    "form that ends in a file": Call(
        headers=[(b"content-type", FORM + b"utf-8")], chunks=[FILE_PART.removesuffix(b"\r\n")]
    ),
    "codec that decodes nothing": Call(
        headers=[(b"content-type", FORM + b"undefined")],
        chunks=[WRONG_FORM % (b"file", b'; filename="a"', b"1")],
    ),
    "number of a channel with 5000 digits": Call(query=b"channels=" + b"9" * 5000),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_fuzzing_has_found(asgi: Asgi, name: str) -> None:
    judge(asgi, FOUND[name])
    assert asgi(FOUND[name]).status in (400, 404, 415)
