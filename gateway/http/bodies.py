"""Bodies of messages in JSON: as text, as JSON, or as base64 of any bytes."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel

from tarry.gateway.http import strict_json

T = TypeVar("T")
INLINE_BYTES_MAX: Final = 32_768
"""Bytes of bodies that are read or written within a turn of the event loop, at 0.3 ms for each KiB."""

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


def json_of(answer: BaseModel) -> bytes:
    """Return an answer as JSON, without the fields that are not set."""
    return strict_json.serialize(answer.model_dump(mode="json", exclude_unset=True))


async def made(make: Callable[[], T], size_bytes: int) -> T:
    """Return what is made of bodies of so many bytes; of large ones in a thread, so that others go on."""
    return make() if size_bytes <= INLINE_BYTES_MAX else await asyncio.to_thread(make)
