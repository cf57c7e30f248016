"""The console where no node answers: what is sent to it is checked before any cluster is asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tarry.client.errors import Unavailable
from tarry.client.settings import Settings
from tarry.console.accesses import (
    IDLE_S,
    VISITS_MAX,
    VISITS_OF_TOKEN_MAX,
    Access,
    Accesses,
    Visit,
)
from tarry.console.app import console_app
from tarry.console.guard import COOKIE, FIELDS_MAX, FORM_BYTES_MAX, FORM_TOKEN, QUERY_CHARACTERS_MAX
from tarry.console.jobs import Job
from tests.console.test_jobs import until

NOBODY = Settings(servers=("127.0.0.1:1",), deadline_ms=300, attempt_ms=100)
HOST = "http://127.0.0.1:8070"


@pytest.fixture
async def browser() -> AsyncIterator[httpx.AsyncClient]:
    app = console_app(NOBODY, ("Console.Example",))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
        yield client
    await app.state.console.accesses.close()


async def form_token(browser: httpx.AsyncClient) -> str:
    page = (await browser.get("/sign-in")).text
    [found] = set(re.findall(rf'name="{FORM_TOKEN}" value="([0-9a-f]+)"', page))
    return str(found)


async def test_pages_say_that_no_node_answers(browser: httpx.AsyncClient) -> None:
    pages = ("/", "/ahead", "/topics", "/groups", "/schedules", "/message", "/cluster", "/jobs")
    for path in (*pages, "/search?q=x"):
        answer = await browser.get(path)
        assert answer.status_code == 200, path
    page = (await browser.get("/")).text
    assert "no node answers" in page
    assert "See that the nodes run" in page


async def test_every_answer_has_the_headers_that_browsers_go_by(browser: httpx.AsyncClient) -> None:
    for path in ("/", "/static/console.css", "/nothing", "/message/x"):
        headers = (await browser.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == ("max-age=3600" if path.startswith("/static") else "no-store")


async def test_nothing_in_a_page_is_inline_or_of_another_host(browser: httpx.AsyncClient) -> None:
    for path in ("/", "/ahead", "/sign-in", "/nothing", "/jobs", "/search?q=x", "/audit"):
        page = (await browser.get(path)).text
        assert re.search(r"<style|\sstyle=|\son\w+=|javascript:", page) is None, path
        assert re.findall(r"<script(?! src=)[^>]*>", page) == []
        assert re.findall(r'(?:src|href)="(?:https?:)?//', page) == []


async def test_no_look_overwrites_what_is_typed_into_the_form_of_a_range(browser: httpx.AsyncClient) -> None:
    page = (await browser.get("/ahead")).text
    before, _, behind = page.partition('<div id="live"')
    for field in ("from", "to"):
        assert f'id="{field}"' in before
        assert f'id="{field}"' not in behind


async def test_jobs_of_one_title_are_rows_with_ids_of_their_own() -> None:
    async def work(_: Job) -> bool:
        return True

    app = console_app(NOBODY)
    jobs = app.state.console.accesses.guest.jobs
    started = [jobs.start(Job("Cancel in orders", "/", 1), work) for _ in range(2)]
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
        page = (await client.get("/jobs")).text
    assert {f"jobs-{job.id}" for job in started} <= set(re.findall(r'<tr id="([^"]+)"', page))
    await app.state.console.accesses.close()


async def test_who_would_go_on_with_a_job_that_runs_takes_nothing_from_it() -> None:
    async def work(job: Job) -> bool:
        job.more = work
        await go.wait()
        return False

    app, go = console_app(NOBODY), asyncio.Event()
    jobs = app.state.console.accesses.guest.jobs
    job = jobs.start(Job("Cancel in orders", "/", 1), work)
    await until(lambda: job.more is not None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=HOST) as client:
        form = {FORM_TOKEN: await form_token(client)}
        assert (await client.post(f"/jobs/{job.id}/on", data=form)).status_code == 409
        await client.post(f"/jobs/{job.id}/stop", data=form)
        go.set()
        await until(lambda: not job.running)
        assert "Go on with it" in (await client.get(f"/jobs/{job.id}")).text
        answer = await client.post(f"/jobs/{job.id}/on", data=form)
        assert answer.status_code == 303
        assert answer.headers["location"] != f"/jobs/{job.id}"
        assert (await client.post(f"/jobs/{job.id}/on", data=form)).status_code == 409
    await app.state.console.accesses.close()


async def test_jobs_of_all_tokens_have_one_time_to_stop_as_the_console_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarry.console.jobs.STOP_S", 0.1)
    ended = list[float]()

    async def work(_: Job) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(asyncio.get_running_loop().time())
        return True

    accesses = Accesses(NOBODY, lambda: 0.0)
    for token in "abcdef":
        access = Access(NOBODY)
        accesses._of_token[token] = access
        access.jobs.start(Job("hang", "/", 1, can_stop=False), work)
    await asyncio.sleep(0)
    await accesses.close()
    assert len(ended) == 6
    assert max(ended) - min(ended) < 0.3  # one after another they take half a second


async def test_a_new_member_s_name_and_address_have_bounds(browser: httpx.AsyncClient) -> None:
    form = {FORM_TOKEN: await form_token(browser), "node": "n4", "address": "10.0.0.4:7001"}
    assert (await browser.post("/cluster/add", data=form)).status_code == 403  # who may operate is asked next
    for wrong in ({"node": "x" * 101}, {"address": "x" * 301}, {"node": ""}, {"address": " "}):
        assert (await browser.post("/cluster/add", data=form | wrong)).status_code == 400


async def test_a_visitor_s_cookie_is_set_once_and_not_for_scripts(browser: httpx.AsyncClient) -> None:
    first = (await browser.get("/sign-in")).headers["set-cookie"]
    assert first.startswith(f"{COOKIE}=")
    assert first.endswith("; Path=/; HttpOnly; SameSite=Lax")
    assert "set-cookie" not in (await browser.get("/sign-in")).headers
    secure = await browser.get("https://127.0.0.1/sign-in", headers={"cookie": ""})
    assert secure.headers["set-cookie"].endswith("; Secure")
    long = await browser.get("/sign-in", headers={"cookie": f"{COOKIE}={'x' * 101}"})
    assert "set-cookie" in long.headers


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1:8070", 200),
        ("localhost", 200),
        ("[::1]:8070", 200),
        ("console.example:443", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("127.0.0.1@evil.example", 421),
        ("[", 421),
        ("", 421),
    ],
)
async def test_only_its_own_names_are_answered(browser: httpx.AsyncClient, host: str, code: int) -> None:
    assert (await browser.get("/sign-in", headers={"host": host})).status_code == code


POSTS = (
    "/topics",
    "/topics/t/delete",
    "/topics/t/settings",
    "/topics/t/purge",
    "/topics/t/redrive",
    "/topics/t/groups/new",
    "/topics/t/g/policy",
    "/topics/t/g/seek",
    "/topics/t/g/delete",
    "/schedules/s/pause",
    "/schedules/s/resume",
    "/schedules/s/trigger",
    "/schedules/s/delete",
    "/message/x/cancel",
    "/message/x/reschedule",
    "/message/x/send",
    "/cluster/transfer",
    "/cluster/upgrade",
    "/cluster/remove",
    "/cluster/add",
    "/cluster/backups/new",
    "/cluster/backups/download",
    "/cluster/settings",
    "/ahead/cancel",
    "/jobs/j/stop",
    "/jobs/j/on",
    "/sign-in",
    "/sign-out",
)


@pytest.mark.parametrize("path", POSTS)
async def test_a_form_of_another_site_or_visitor_is_refused(browser: httpx.AsyncClient, path: str) -> None:
    token = await form_token(browser)
    for fields in ({}, {FORM_TOKEN: ""}, {FORM_TOKEN: "0" * 64}, {FORM_TOKEN: "ü"}, {FORM_TOKEN: token[:-1]}):
        answer = await browser.post(path, data=fields)
        assert (answer.status_code, "load the page again" in answer.text) == (403, True)
    browser.cookies.clear()
    assert (await browser.post(path, data={FORM_TOKEN: token})).status_code == 403


def test_all_changes_are_among_those_paths() -> None:
    app = console_app(NOBODY)
    changing = [route.path for route in app.routes if "POST" in (getattr(route, "methods", None) or ())]
    plain = {
        re.sub(
            r"\{(\w+)\}",
            lambda of: {"topic": "t", "group": "g", "id": "x", "name": "s", "job": "j"}[of[1]],
            path,
        )
        for path in changing
    }
    assert plain == set(POSTS)


async def test_a_form_has_its_bounds(browser: httpx.AsyncClient) -> None:
    token = await form_token(browser)
    large = await browser.post("/sign-in", content=b"x" * (FORM_BYTES_MAX + 1))
    assert (large.status_code, "send less" in large.text) == (413, True)
    most = {FORM_TOKEN: token, **{f"f{at}": "" for at in range(FIELDS_MAX - 1)}}
    assert (await browser.post("/sign-in", data=most)).status_code == 400  # no token of the cluster
    assert "Give a token" in (await browser.post("/sign-in", data=most)).text
    more = await browser.post("/sign-in", data={**most, "one": "more"})
    assert f"at most {FIELDS_MAX}" in more.text
    assert (await browser.post("/sign-in", content=b"\xff=\xff")).status_code == 400


async def test_a_token_is_checked_before_it_is_sent_and_nobody_to_ask_is_told(
    browser: httpx.AsyncClient,
) -> None:
    token = await form_token(browser)

    async def sign_in(secret: str) -> httpx.Response:
        return await browser.post("/sign-in", data={FORM_TOKEN: token, "token": secret, "next": "/"})

    assert "printable ASCII" in (await sign_in("schlüssel")).text
    assert (await sign_in("x" * 5_000)).status_code == 400
    assert (await sign_in("secret")).status_code == 503
    assert COOKIE in browser.cookies
    assert "Sign out" not in (await browser.get("/")).text


async def test_what_is_not_there_is_told(browser: httpx.AsyncClient) -> None:
    answer = await browser.get("/nothing")
    assert (answer.status_code, "There is no such page." in answer.text) == (404, True)
    assert (await browser.get("/topics/t/delete")).status_code in {404, 405}
    assert (await browser.get("/static/../app.py")).status_code == 404
    assert (await browser.get("/static/%2e%2e/app.py")).status_code == 404


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def signed_in(accesses: Accesses, cookie: str, token: str) -> Access:
    """Sign a visitor in without asking the cluster."""
    accesses._of_token.setdefault(token, Access(NOBODY))
    accesses._visits[cookie] = Visit(token, accesses._clock_s())
    accesses._make_room(token)
    return accesses.of(cookie)


async def test_visitors_of_one_token_share_an_access_until_the_last_is_gone() -> None:
    accesses = Accesses(NOBODY, Clock())
    access = signed_in(accesses, "a", "one")
    assert signed_in(accesses, "b", "one") is access
    assert signed_in(accesses, "c", "two") is not access
    accesses.sign_out("a")
    assert accesses.of("b") is access
    accesses.sign_out("b")
    assert accesses.of("b") is accesses.guest
    assert signed_in(accesses, "d", "one") is not access
    await accesses.close()


async def test_a_client_is_closed_once_calls_under_way_have_ended() -> None:
    accesses = Accesses(NOBODY, Clock())
    access = signed_in(accesses, "a", "one")
    accesses.sign_out("a")
    with pytest.raises(Unavailable):
        await access.watch.look()
    assert accesses._left == [access]
    await accesses.sweep()
    assert accesses._left == []
    await accesses.close()


async def test_who_is_idle_is_signed_out() -> None:
    clock = Clock()
    accesses = Accesses(NOBODY, clock)
    access = signed_in(accesses, "a", "one")
    clock.now_s += IDLE_S
    assert accesses.of("a") is access  # an open page asks for it, and makes no visit of it
    accesses.used("a")
    clock.now_s += IDLE_S
    assert accesses.knows("a")
    clock.now_s += 1
    assert accesses.of("a") is accesses.guest
    await accesses.sweep()
    assert not accesses._of_token
    await accesses.close()


async def test_the_visitor_who_was_away_longest_makes_room() -> None:
    accesses = Accesses(NOBODY, Clock())
    for at in range(VISITS_MAX):
        signed_in(accesses, f"v{at}", f"token-{at % 20}")
    accesses.used("v0")  # and so v1 was away longest
    signed_in(accesses, "one more", "another")
    assert [accesses.knows(cookie) for cookie in ("v0", "v1", "v2", "one more")] == [True, False, True, True]
    await accesses.close()


async def test_who_has_a_token_cannot_sign_all_others_out() -> None:
    accesses = Accesses(NOBODY, Clock())
    signed_in(accesses, "other", "other")
    for at in range(VISITS_OF_TOKEN_MAX + 2):
        signed_in(accesses, f"v{at}", "one")
    assert [accesses.knows(cookie) for cookie in ("other", "v0", "v1", "v2")] == [True, False, False, True]
    await accesses.close()


async def test_a_cookie_of_somebody_else_or_made_up_is_a_guest_s() -> None:
    accesses = Accesses(NOBODY, Clock())
    signed_in(accesses, "a", "one")
    assert not accesses.knows("b")
    accesses.sign_out("b")
    accesses.sign_out("a")
    assert not accesses.knows("a")
    await accesses.close()


async def test_a_query_has_its_bound(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/topics?x=" + "y" * (QUERY_CHARACTERS_MAX - 2))).status_code == 200
    assert (await browser.get("/topics?x=" + "y" * (QUERY_CHARACTERS_MAX - 1))).status_code == 414
