"""The page of operations: HTML without scripts, made of the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any, Final

STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
  color: #1a1a1a; background: #fff; }
h2 { border-top: 1px solid #bbb; padding-top: 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
th, td { border: 1px solid #bbb; padding: 0.25rem 0.5rem; text-align: left; vertical-align: top; }
nav ul { columns: 2; }
@media (prefers-color-scheme: dark) {
  body { color: #eee; background: #161616; }
  a { color: #8ab4f8; }
}
"""


def page(document: dict[str, Any]) -> str:
    """Return the page of a document."""
    return "\n".join(_lines(document))


def _lines(document: dict[str, Any]) -> Iterator[str]:
    info, schemas = document["info"], document["components"]["schemas"]
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/page.css">'
    yield f"<title>{escape(info['title'])}: HTTP operations</title></head><body><main>"
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}: HTTP operations</h1>"
    yield f"<p>{escape(info['summary'])} For programs: <a href='/openapi.json'>openapi.json</a>.</p><nav><ul>"
    for method, path, operation in operations:
        name = operation["operationId"]
        yield f'<li><a href="#{name}">{escape(name)}</a>: <code>{method} {escape(path)}</code></li>'
    yield "</ul></nav>"
    for method, path, operation in operations:
        yield f'<section id="{operation["operationId"]}"><h2><code>{method} {escape(path)}</code></h2>'
        yield f"<p>{escape(operation['summary'])} {escape(operation.get('description', ''))}</p>"
        rows = [
            (one["name"], one["in"], one.get("required", False), {**one["schema"], **one})
            for one in operation["parameters"]
        ]
        body = operation.get("requestBody")
        if body:
            schema = _followed(body["content"]["application/json"]["schema"], schemas)
            rows += [
                (name, "body", name in schema.get("required", ()), one)
                for name, one in schema["properties"].items()
            ]
        yield from _table("Request", rows, schemas)
        answer = operation["responses"][min(operation["responses"])]["content"].get("application/json")
        if answer:
            schema = _followed(answer["schema"], schemas)
            fields = [(name, "", True, one) for name, one in schema["properties"].items()]
            yield from _table("Answer", fields, schemas)
        yield "</section>"
    yield "</main></body></html>"


def _table(
    title: str, rows: list[tuple[str, str, bool, dict[str, Any]]], schemas: dict[str, Any]
) -> Iterator[str]:
    if not rows:
        return
    yield f"<h3>{title}</h3><table><tr><th>field</th><th>type</th><th>meaning</th></tr>"
    for name, place, required, schema in rows:
        where = f" ({place}{', required' if required else ''})" if place else ""
        yield (
            f"<tr><td><code>{escape(name)}</code>{where}</td><td>{escape(_type(schema, schemas))}</td>"
            f"<td>{escape(schema.get('description', ''))}</td></tr>"
        )
    yield "</table>"


def _type(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    if "$ref" in schema:
        inner = _followed(schema, schemas)
        if inner.get("type") != "object":
            return _type(inner, schemas)
        return "{" + ", ".join(inner["properties"]) + "}"
    if "anyOf" in schema:
        return " or ".join(_type(one, schemas) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'], schemas)}"
    return str(schema.get("type", "any"))


def _followed(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    return dict(schemas[schema["$ref"].rpartition("/")[2]]) if "$ref" in schema else schema
