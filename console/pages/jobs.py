"""The pages *Jobs* and of one job: how far it is; it can be left, stopped, and gone on with."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tarry.console.accesses import Access
from tarry.console.guard import form_of
from tarry.console.jobs import Job, TooManyJobs, Work
from tarry.console.rendering import access_of, live, page, render
from tarry.console.views import cells
from tarry.console.views.cells import path
from tarry.console.views.table import Column, table_of
from tarry.console.watch import Look

KINDS: Final = {"running": "plain", "stopping": "warn", "done": "good", "stopped": "warn", "failed": "bad"}
COLUMNS: Final = (
    Column("title", "Job", show=lambda row: cells.link(row["title"], "jobs", row["id"])),
    Column("state", "State", show=lambda row: cells.badge(row["state"], KINDS[row["state"]])),
    Column("percent", "Done", number=True, show=lambda row: f"{row['percent']} %" if row["total"] else ""),
    Column("started_ms", "Started", show=lambda row: cells.time(row["started_ms"])),
)


def start(access: Access, title: str, back: str, work: Work, *, can_stop: bool = True) -> Response:
    """Start a job, and lead to its page. Raises HTTPException 409 where too many run.

    ``access``: that the work asks the cluster with. The visitor's own may be another by now: who has signed
    out meanwhile is a guest.
    """
    job = Job(title, back, time.time_ns() // 1_000_000, can_stop)
    try:
        access.jobs.start(job, work)
    except TooManyJobs as error:
        raise HTTPException(409, str(error)) from None
    return RedirectResponse(path("jobs", job.id), 303)


def percent(job: Job) -> int:
    """Return how much of a job is done, rounded down."""
    return 100 * job.done // job.total if job.total else 0


async def values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page of all jobs shows."""
    rows = [
        {
            "key": job.id,
            "id": job.id,
            "title": job.title,
            "state": job.state.value,
            "percent": percent(job),
            "total": job.total,
            "started_ms": job.started_ms,
        }
        for job in access_of(request).jobs.all()
    ]
    return {"jobs": table_of("jobs", "Jobs", COLUMNS, rows, request.query_params, "-started_ms")}


async def job_values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page of one job shows."""
    job = access_of(request).jobs.get(request.path_params["job"])
    return {
        "job": job,
        "kind": KINDS[job.state.value] if job is not None else "plain",
        "percent": percent(job) if job is not None else 0,
        "page": "/jobs",
    }


async def _job(request: Request) -> Response:
    job = _job_of(request)
    look = await access_of(request).watch.look()
    return render(
        request, "job.html", look=look, address=path("jobs", job.id), **await job_values_of(request, look)
    )


async def _stop(request: Request) -> Response:
    await form_of(request)
    job = _job_of(request)
    job.stop()
    return RedirectResponse(path("jobs", job.id), 303)


async def _go_on(request: Request) -> Response:
    await form_of(request)
    access, job = access_of(request), _job_of(request)
    if job.running or job.more is None:
        raise HTTPException(409, "this job cannot be gone on with: it runs, is done, or was gone on with")
    answer = start(access, job.title, job.back, job.more)
    job.more = None
    return answer


def _job_of(request: Request) -> Job:
    job = access_of(request).jobs.get(request.path_params["job"])
    if job is None:
        raise HTTPException(404, "There is no such job of this token, or it ended long ago.")
    return job


ROUTES: Final = (
    Route("/jobs", page("jobs.html", values_of)),
    Route("/live/jobs", live("jobs_live.html", values_of)),
    Route("/jobs/{job}", _job),
    Route("/live/jobs/{job}", live("job_live.html", job_values_of)),
    Route("/jobs/{job}/stop", _stop, methods=["POST"]),
    Route("/jobs/{job}/on", _go_on, methods=["POST"]),
)
