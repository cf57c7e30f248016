"""The OpenAPI document is valid and has what the gateway does; the page shows it without a script."""

from __future__ import annotations

import re

import httpx
from openapi_spec_validator import OpenAPIV31SpecValidator

from tarry.gateway.http.openapi import document
from tarry.gateway.http.operations import OPERATIONS


def test_the_document_is_valid() -> None:
    OpenAPIV31SpecValidator(document()).validate()


def test_the_document_has_each_operation_once_with_its_parameters() -> None:
    paths = document()["paths"]
    told = {
        (method.upper(), path, operation["operationId"])
        for path, methods in paths.items()
        for method, operation in methods.items()
    }
    assert told == {(each.method, each.path, each.name) for each in OPERATIONS}
    assert len({each.name for each in OPERATIONS}) == len(OPERATIONS)
    for each in OPERATIONS:
        parameters = paths[each.path][each.method.lower()]["parameters"]
        assert [one["name"] for one in parameters if one["in"] == "path"] == each.parameters
        query = [one["name"] for one in parameters if one["in"] == "query"]
        assert query == list(each.query.model_fields if each.query else ())
        assert (each.body is not None) == ("requestBody" in paths[each.path][each.method.lower()])


async def test_the_page_shows_each_operation_and_loads_nothing_from_elsewhere(
    http: httpx.AsyncClient,
) -> None:
    page = (await http.get("/")).text
    for each in OPERATIONS:
        assert f'id="{each.name}"' in page
        assert f"{each.method} {each.path}" in page
    assert re.findall(r"<script|<style|\sstyle=|\son\w+=|javascript:", page) == []
    assert re.findall(r'(?:src|href)="(?:https?:)?//', page) == []
    assert (await http.get("/page.css")).headers["content-type"].startswith("text/css")
    assert (await http.get("/openapi.json")).json() == document()
