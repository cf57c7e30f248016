"""The OpenAPI document, made of the table of operations."""

from __future__ import annotations

from typing import Any, Final

from pydantic.json_schema import models_json_schema

from tarry.gateway.http import fields
from tarry.gateway.http.operations import OPERATIONS, Operation
from tarry.proto.version import VERSION

REFERENCES: Final = "#/components/schemas/{model}"
PARAMETERS: Final = {
    "topic": "A topic: letters, digits, `_`, `-` and `.`.",
    "group": "A group of consumers.",
    "id": "A message's id, as schedule answered it.",
}
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {"error": {"$ref": "#/components/schemas/Refusal"}},
}
_REFUSAL: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["reason", "text", "advice", "facts"],
    "additionalProperties": False,
    "properties": {
        "reason": {"type": "string", "description": "One of the cluster's reasons, or of the gateway's."},
        "text": {"type": "string", "description": "What is wrong."},
        "advice": {"type": "string", "description": "What to do."},
        "facts": {"type": "object", "additionalProperties": {"type": "string"}},
        "retry_ms": {"type": "integer", "description": "When to try again; also in Retry-After."},
    },
}


def document() -> dict[str, Any]:
    """Return the document, OpenAPI 3.1."""
    given = [model for each in OPERATIONS for model in (each.body, each.query) if model is not None]
    told = [each.answer for each in OPERATIONS if each.answer is not None]
    received: list[type[Any]] = [fields.Received]
    models = [(model, "validation") for model in dict.fromkeys(given)]
    models += [(model, "serialization") for model in dict.fromkeys([*told, *received])]
    names, schemas = models_json_schema(models, ref_template=REFERENCES)  # type: ignore[arg-type]
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, names, schemas["$defs"])
    queries = {_name(names, each.query, "validation") for each in OPERATIONS if each.query is not None}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tarry",
            "version": VERSION,
            "summary": "A delayed-message service: give it a message and a due time.",
        },
        "paths": paths,
        "components": {
            "schemas": {
                **{name: schema for name, schema in schemas["$defs"].items() if name not in queries},
                "Error": _ERROR,
                "Refusal": _REFUSAL,
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(operation: Operation, names: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            {
                "name": name,
                "in": "path",
                "required": True,
                "description": PARAMETERS[name],
                "schema": {"type": "string"},
            }
            for name in operation.parameters
        ],
        "responses": {
            str(operation.status): {"description": "Done.", "content": _answer(operation, names)},
            "default": {
                "description": "Refused, or failed: the reason says why, the advice what to do.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if operation.notes:
        told["description"] = operation.notes
    if operation.query is not None:
        schema = schemas[_name(names, operation.query, "validation")]
        told["parameters"] += [_parameter(name, one) for name, one in schema["properties"].items()]
    if operation.body is not None:
        reference = {"$ref": REFERENCES.format(model=_name(names, operation.body, "validation"))}
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
    return told


def _answer(operation: Operation, names: Any) -> dict[str, Any]:
    if operation.answer is None:
        return {"text/event-stream": {"schema": {"type": "string"}}}
    reference = REFERENCES.format(model=_name(names, operation.answer, "serialization"))
    return {"application/json": {"schema": {"$ref": reference}}}


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    described = {key: value for key, value in schema.items() if key not in {"description", "title"}}
    told: dict[str, Any] = {"name": name, "in": "query", "schema": described}
    if "description" in schema:
        told["description"] = schema["description"]
    return told


def _name(names: Any, model: type[Any], mode: str) -> str:
    return str(names[model, mode]["$ref"].rpartition("/")[2])
