"""Label names: a checkpoint writes them as `生气/angry`; people read one half."""

from collections.abc import Sequence

UNKNOWN = {"en": "unknown", "zh": "未知"}


def label_name(token: str, language: str = "en") -> str:
    """`生气/angry` → `angry` (en) or `生气` (zh); `<unk>` → `unknown` / `未知`."""
    if token == "<unk>":
        return UNKNOWN[language]
    chinese, slash, english = token.partition("/")
    if not slash:
        return token
    return english if language == "en" else chinese


def used_columns(tokens: Sequence[str]) -> list[int]:
    """Columns of the classifier that count: tokens starting with `unuse` are left out."""
    return [i for i, token in enumerate(tokens) if not token.startswith("unuse")]
