"""Rows of the public measurement that this benchmark cannot fill, and why."""

from benchmarks.report import Row, absent

ELSEWHERE = "Rows of the public measurement that are not measured here"


def unmeasured_rows() -> list[Row]:
    """One row each."""
    return [
        absent(
            ELSEWHERE,
            "accuracy on RAVDESS (others: 87.2 → 87.0 %)",
            "needs the published weights and the corpus; `e2v models prepare --verify` proves "
            "equality with FunASR instead",
        ),
        absent(
            ELSEWHERE,
            "large uploads freeze the page for 2–3 s; logs drown the result",
            "a property of the web page, tested in a browser, not timed",
        ),
        absent(
            ELSEWHERE,
            "an unwritable output folder fails silently",
            "the server writes no files; `--out` of this command says so in one line",
        ),
    ]
