"""What OpenAPI says about bodies and parameters, generated from the models."""

from typing import Any

from serve_app.parameters import Parameters


def _parameters() -> list[dict[str, Any]]:
    properties = Parameters.model_json_schema()["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": {k: v for k, v in schema.items() if k not in ("description", "title")},
            "description": schema.get("description", ""),
        }
        for name, schema in properties.items()
    ]


_BASE64 = {"type": "string", "format": "byte"}
_INPUTS = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "inputs": {"oneOf": [_BASE64, {"type": "array", "items": _BASE64}]},
        "parameters": {"type": "object"},
    },
}
_FORM = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}},
}
_RAW = {"schema": {"type": "string", "format": "binary"}}

AUDIO_BODY: dict[str, Any] = {
    "parameters": _parameters(),
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": _RAW,
            "application/json": {"schema": _INPUTS},
            "multipart/form-data": {"schema": _FORM},
        },
    },
}
HUGGING_FACE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": _RAW, "application/json": {"schema": _INPUTS}},
    },
}
