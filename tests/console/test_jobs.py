"""Jobs: how many run, what becomes of them, and for how long they are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tarry.client.errors import NotPermitted
from tarry.client.settings import Settings
from tarry.console.accesses import Access, Accesses, Visit
from tarry.console.jobs import KEPT_MAX, KEPT_S, RUNNING_MAX, Job, JobFailed, Jobs, JobState, TooManyJobs

NOBODY = Settings(servers=("127.0.0.1:1",), deadline_ms=300, attempt_ms=100)


async def until(is_so: Callable[[], bool]) -> None:
    """Let others run until something is so."""
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was")


class Play:
    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.jobs = Jobs(lambda: self.now_s)
        self.go = asyncio.Event()

    def start(self, title: str = "wait") -> Job:
        return self.jobs.start(Job(title, "/", 1), self.wait)

    async def wait(self, job: Job) -> bool:
        job.tell(1, 2, ["half is done"])
        await until(lambda: self.go.is_set() or job.stopping)
        return not job.stopping

    async def until(self, job: Job, state: JobState) -> None:
        await until(lambda: job.state is state)


async def test_a_job_goes_on_by_itself_and_says_how_far_it_is() -> None:
    play = Play()
    job = play.start()
    assert play.jobs.get(job.id) is job
    await asyncio.sleep(0)
    assert (job.state, job.done, job.total, job.sentences) == (JobState.RUNNING, 1, 2, ["half is done"])
    play.go.set()
    await play.until(job, JobState.DONE)
    assert not job.running


async def test_a_job_that_is_stopped_stops_between_two_steps() -> None:
    play = Play()
    job = play.start()
    job.stop()
    assert job.state is JobState.STOPPING
    await play.until(job, JobState.STOPPED)
    job.stop()
    assert job.state is JobState.STOPPED


async def test_a_token_has_a_bounded_number_of_jobs() -> None:
    play = Play()
    running = [play.start() for _ in range(RUNNING_MAX)]
    with pytest.raises(TooManyJobs, match="wait for one"):
        play.start()
    running[0].stop()
    await play.until(running[0], JobState.STOPPED)
    play.start()
    await play.jobs.end()
    assert not any(job.running for job in play.jobs.all())


async def test_who_signs_out_stops_its_jobs_at_once_and_no_other_starts() -> None:
    accesses = Accesses(NOBODY, lambda: 0.0)
    access = accesses._of_token["t"] = Access(NOBODY)
    for cookie in ("one", "two"):
        accesses._visits[cookie] = Visit("t", 0.0)
    play = Play()
    job = access.jobs.start(Job("wait", "/", 1), play.wait)
    accesses.sign_out("one")
    assert job.state is JobState.RUNNING
    accesses.sign_out("two")
    await until(lambda: job.state is JobState.STOPPED)
    with pytest.raises(TooManyJobs, match="sign in again"):
        access.jobs.start(Job("late", "/", 1), play.wait)
    await accesses.close()


async def test_ended_jobs_are_kept_for_a_while_and_so_many() -> None:
    play = Play()
    play.go.set()
    ended = list[Job]()
    for _ in range(KEPT_MAX + 3):
        ended.append(play.start())
        await play.until(ended[-1], JobState.DONE)
        play.now_s += 1
    assert play.jobs.all() == ended[: -KEPT_MAX - 1 : -1]
    assert play.jobs.get(ended[0].id) is None
    play.now_s = 1_000.0 + KEPT_S + len(ended) - 1
    assert play.jobs.all() == [ended[-1]]
    play.now_s += 1
    assert play.jobs.all() == []


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (NotPermitted("PERMISSION_DENIED", "not yours"), "PERMISSION_DENIED: not yours"),
        (JobFailed("make room"), "make room"),
        (OSError(28, "No space left on device", "/backups"), "/backups: No space left on device"),
    ],
)
async def test_why_a_job_has_failed_is_told_behind_what_it_has_done(error: Exception, says: str) -> None:
    play = Play()

    async def work(job: Job) -> bool:
        job.tell(1, 3, ["one is done"])
        raise error

    job = play.jobs.start(Job("fail", "/", 1), work)
    await play.until(job, JobState.FAILED)
    assert list(job.sentences)[:2] == ["one is done", says]


async def test_a_job_that_does_not_stop_is_ended_with_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.console.jobs.STOP_S", 0.01)
    play = Play()

    async def work(_: Job) -> bool:
        await asyncio.Event().wait()
        return True

    job = play.jobs.start(Job("hang", "/", 1, can_stop=False), work)
    job.stop()
    assert job.state is JobState.RUNNING
    await play.jobs.end()
    assert job.state is JobState.FAILED
