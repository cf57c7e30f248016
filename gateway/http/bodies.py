"""Bodies of messages in JSON: as text, as JSON, or as base64 of any bytes."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final, Literal, TypeAlias

from tarry.gateway.http import strict_json

BodyAs: TypeAlias = Literal["text", "json", "base64"]
"""How bodies are answered: ``text`` where they are UTF-8, ``json`` where they are JSON, else as base64."""

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def bytes_of(given: dict[str, Any]) -> bytes:
    """Return the bytes of the one field that is given; none given: no bytes. Raises ValueError."""
    if len(given) > 1:
        raise ValueError(f"give one of {', '.join(sorted(given))}")
    if "body" in given:
        return str(given["body"]).encode()
    if "body_json" in given:
        return strict_json.serialize(given["body_json"])
    if "body_base64" in given:
        try:
            if len(given["body_base64"]) % 4 == 0:
                return base64.b64decode(given["body_base64"], validate=True)
        except (binascii.Error, ValueError):
            pass
        raise ValueError("body_base64 is not base64 (RFC 4648, section 4, with padding)")
    return b""


def fields_of(body: bytes, wanted: BodyAs) -> dict[str, Any]:
    """Return the field in which a body is answered: ``body``, ``body_json`` or ``body_base64``."""
    if wanted == "json":
        try:
            value = strict_json.parse(body)
            if _SURROGATE.search(body):  # half of a pair can be read of JSON, but not be answered
                strict_json.serialize(value)
            return {"body_json": value}
        except ValueError:
            pass
    if wanted != "base64":
        try:
            return {"body": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"body_base64": base64.b64encode(body).decode()}
