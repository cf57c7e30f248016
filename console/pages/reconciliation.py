"""The page *Reconciliation*: runs of ``tarry reconcile`` in the folder of ``--reports``, with findings."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.console import folders
from tarry.console.rendering import operators_look, render
from tarry.console.views.reconciliation import (
    CHECK_COLUMNS,
    FOUND_COLUMNS,
    RUN_COLUMNS,
    Run,
    check_rows,
    run_of,
    run_row,
)
from tarry.console.views.table import Row, table_of

SHOWN_MAX: Final = 100
SUMMARY: Final = "summary.json"
FINDINGS: Final = "findings.json"
SUMMARY_BYTES_MAX: Final = 1 << 20
FINDINGS_BYTES_MAX: Final = 8 << 20
"""JSON of so many bytes takes up to some 25 times as many in memory."""


def _folder_of(request: Request) -> Path:
    given: folders.Folders = request.app.state.console.folders
    if given.reports is None:
        raise HTTPException(404, "This console was started without --reports, the folder of runs.")
    return given.reports


def _rows(folder: Path) -> tuple[list[Row], int]:
    """Return a row for each run that was written last, and how many there are. Raises OSError."""
    found, count = folders.newest_with(folder, SHOWN_MAX, SUMMARY, SUMMARY_BYTES_MAX)
    return [run_row(name, summary) for name, summary in found], count


async def _runs(request: Request) -> Response:
    look, folder = await operators_look(request), _folder_of(request)
    rows, count, fault = list[Row](), 0, ""
    try:
        async with request.app.state.console.reading:
            rows, count = await asyncio.to_thread(_rows, folder)
    except OSError as error:
        fault = f"{folder} cannot be read: {error.strerror}"
    return render(
        request,
        "reconciliation.html",
        look=look,
        folder=folder,
        fault=fault,
        more=count - len(rows),
        runs=table_of("runs", "Runs", RUN_COLUMNS, rows, request.query_params, "-as_of_ms"),
    )


async def _run(request: Request) -> Response:
    look, name = await operators_look(request), request.path_params["run"]
    run = await _found(request, name)
    checks = table_of("checks", "Checks that found something", CHECK_COLUMNS, check_rows(run, name),
                      request.query_params, "-promise")  # fmt: skip
    return render(request, "run.html", look=look, name=name, run=run, checks=checks)


async def _check(request: Request) -> Response:
    look, name = await operators_look(request), request.path_params["run"]
    run, wanted = await _found(request, name), request.path_params["check"]
    checks = [check for check in run.checks if check.name == wanted]
    if not checks:
        raise HTTPException(404, f"The run {name} has nothing of this check.")
    found = table_of("found", "Found", FOUND_COLUMNS, checks[0].rows, request.query_params, "at_ms")
    return render(request, "check.html", look=look, name=name, check=checks[0], found=found)


def _read(folder: Path, name: str) -> Run | None:
    return run_of(folders.read(folder, name, FINDINGS, FINDINGS_BYTES_MAX))


async def _found(request: Request, name: str) -> Run:
    folder = _folder_of(request)
    try:
        async with request.app.state.console.reading:
            run = await asyncio.to_thread(_read, folder, name)
    except folders.Missing as error:
        raise HTTPException(404, f"{error}: the run is not finished, or of a version before 0.3.") from None
    except folders.Unreadable as error:
        raise HTTPException(404, f"{error}.") from None
    if run is None:
        raise HTTPException(404, f"{name}/{FINDINGS} is no file of findings.")
    return run


ROUTES: Final = (
    Route("/reconciliation", _runs),
    Route("/reconciliation/{run}", _run),
    Route("/reconciliation/{run}/{check}", _check),
)
