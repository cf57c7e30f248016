"""Checks of requests: queries and bodies become the fields that an operation names, or are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from tarry.gateway.http import strict_json
from tarry.gateway.http.errors import GatewayReason, RequestRefused
from tarry.gateway.http.fields import Given

GivenT = TypeVar("GivenT", bound=Given)
FAULTS_MAX: Final = 5
"""Faults that an answer tells."""
FAULTS_LOOKED_AT_MAX: Final = 1_000
"""Of more, none is told: to collect them takes long."""
TOKEN_CHARACTERS_MAX: Final = 4_096
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_BOOLEANS: Final = {"true": True, "false": False}


def body_fields(raw: bytes, wanted: type[GivenT]) -> GivenT:
    """Return the fields of a body. Raises RequestRefused."""
    try:
        value = strict_json.parse(raw)
    except ValueError as error:
        raise RequestRefused(GatewayReason.JSON_INVALID, f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestRefused(GatewayReason.JSON_INVALID, "the body is no JSON object")
    return _checked(value, wanted)


def query_fields(pairs: Sequence[tuple[str, str]], wanted: type[GivenT]) -> GivenT:
    """Return the fields of a query; one that is a list may be named several times. Raises RequestRefused."""
    kinds = _kinds(wanted)
    given: dict[str, Any] = {}
    for name, text in pairs:
        kind = kinds.get(name, "")
        if kind == "array":
            given.setdefault(name, []).append(text)
        elif name in given:
            raise RequestRefused(GatewayReason.REQUEST_INVALID, f"{name[:100]!r} is named twice")
        elif kind == "integer" and _INTEGER.fullmatch(text):
            given[name] = int(text)
        else:
            given[name] = _BOOLEANS.get(text, text) if kind == "boolean" else text
    return _checked(given, wanted)


def bearer_token(header: str | None) -> str | None:
    """Return the token of an Authorization header, None where there is none. Raises RequestRefused."""
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > TOKEN_CHARACTERS_MAX:
        raise RequestRefused(GatewayReason.TOKEN_INVALID, "the authorization header is no bearer token")
    return token


def _checked(given: dict[str, Any], wanted: type[GivenT]) -> GivenT:
    try:
        return wanted.model_validate(given)
    except ValidationError as error:
        raise RequestRefused(GatewayReason.REQUEST_INVALID, "; ".join(_faults(error, wanted))) from None


def _faults(error: ValidationError, wanted: type[Given]) -> list[str]:
    if error.error_count() > FAULTS_LOOKED_AT_MAX:
        return [f"it has {error.error_count():,} faults: /openapi.json has all fields"]
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    told = []
    for fault in faults[:FAULTS_MAX]:
        where = ".".join(str(part)[:100] for part in fault["loc"]) or "the request"
        text = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            known = f": the fields are {', '.join(wanted.model_fields)}" if len(fault["loc"]) == 1 else ""
            text = f"there is no such field{known}"
        told.append(f"{where}: {text}")
    if len(faults) > FAULTS_MAX:
        told.append(f"and {len(faults) - FAULTS_MAX} more")
    return told


@cache
def _kinds(wanted: type[Given]) -> dict[str, str]:
    """Return the JSON type of each field."""
    kinds = {}
    for name, schema in wanted.model_json_schema()["properties"].items():
        options = [schema, *schema.get("anyOf", ())]
        kinds[name] = next((str(one["type"]) for one in options if one.get("type") not in {None, "null"}), "")
    return kinds
