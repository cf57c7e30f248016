"""Jobs: what takes longer than a request and goes on in the console, whoever looks.

A job belongs to a token, as looks do: all its visitors see it, come back to it, and may stop it. It ends with
the last visit of the token, whose rights it used.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from tarry.client.errors import TarryError

RUNNING_MAX: Final = 4
"""Of a token at once."""
KEPT_MAX: Final = 20
"""Ended ones of a token that can be looked at; beyond, the one that ended first is forgotten."""
KEPT_S: Final = 3_600.0
"""Time for which an ended one can be looked at."""
STOP_S: Final = 5.0
"""Time that a job has to stop by itself once the console, or the visit, ends."""


class JobState(StrEnum):
    """State of a job."""

    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class JobFailed(Exception):
    """A job cannot go on; the text says why, and what to do."""


@dataclass(slots=True, eq=False)
class Job:
    """One job. Its work tells how far it is, and looks between two steps whether it is to stop."""

    title: str
    back: str
    """Address of the page that it was started from."""
    started_ms: int
    """By the clock of the console's machine."""
    can_stop: bool = True
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: JobState = JobState.RUNNING
    done: int = 0
    total: int = 0
    """Of the work; 0: not known."""
    sentences: Sequence[str] = ()
    """What it has done so far, or why it failed."""
    more: Work | None = None
    """Goes on where it has stopped or failed; None: it cannot."""
    ended_s: float = 0.0

    @property
    def running(self) -> bool:
        """It has not ended."""
        return self.state in (JobState.RUNNING, JobState.STOPPING)

    @property
    def stopping(self) -> bool:
        """It has been told to stop: its work returns as soon as it can."""
        return self.state is JobState.STOPPING

    def tell(self, done: int, total: int, sentences: Sequence[str]) -> None:
        """Take how far it is."""
        self.done, self.total, self.sentences = min(done, total), total, sentences

    def stop(self) -> None:
        """Tell it to stop."""
        if self.state is JobState.RUNNING and self.can_stop:
            self.state = JobState.STOPPING


Work: TypeAlias = Callable[[Job], Awaitable[bool]]
"""What a job does; it returns whether all is done. Raises TarryError, JobFailed, OSError: it has failed."""


class TooManyJobs(Exception):
    """A token has as many jobs as it may, or its last visitor has gone."""


class Jobs:
    """The jobs of one token."""

    def __init__(self, clock_s: Callable[[], float], on_end: Callable[[], None] = lambda: None) -> None:
        """Take `on_end`, called as each job ends."""
        self._clock_s, self._on_end = clock_s, on_end
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped = False

    def start(self, job: Job, work: Work) -> Job:
        """Start a job. Raises TooManyJobs."""
        if self._stopped:
            raise TooManyJobs("the visit has ended, and with it what it has started: sign in again")
        if sum(other.running for other in self._jobs.values()) >= RUNNING_MAX:
            raise TooManyJobs(f"{RUNNING_MAX} jobs are running: wait for one of them, or stop one")
        self._forget()
        self._jobs[job.id] = job
        self._tasks[job.id] = asyncio.create_task(self._run(job, work), name=f"job {job.id}")
        return job

    def get(self, job_id: str) -> Job | None:
        """Return a job; None: there is none, or it is kept no more."""
        self._forget()
        return self._jobs.get(job_id)

    def all(self) -> list[Job]:
        """Return the jobs, the newest first."""
        self._forget()
        return list(self._jobs.values())[::-1]

    def stop(self) -> None:
        """Tell all to stop; none starts any more."""
        self._stopped = True
        for job in self._jobs.values():
            job.stop()

    async def end(self) -> None:
        """Stop all, and return when none runs."""
        self.stop()
        tasks = list(self._tasks.values())
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=STOP_S)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _run(self, job: Job, work: Work) -> None:
        job_state = JobState.FAILED
        try:
            job_state = JobState.DONE if await work(job) else JobState.STOPPED
        except TarryError as error:
            advice = (type(error).__doc__ or "").split("\n\n", maxsplit=1)[0]
            job.sentences = [*job.sentences, f"{error.reason}: {error.text}", advice]
        except JobFailed as error:
            job.sentences = [*job.sentences, str(error)]
        except OSError as error:
            job.sentences = [*job.sentences, f"{error.filename or 'the disk'}: {error.strerror or error}"]
        finally:  # a fault of the console, too, leaves no job that seems to run
            job.state, job.ended_s = job_state, self._clock_s()
            del self._tasks[job.id]
            self._on_end()

    def _forget(self) -> None:
        ended = sorted((job for job in self._jobs.values() if not job.running), key=lambda job: job.ended_s)
        oldest_s = self._clock_s() - KEPT_S
        for at, job in enumerate(ended):
            if job.ended_s < oldest_s or at < len(ended) - KEPT_MAX:
                del self._jobs[job.id]
