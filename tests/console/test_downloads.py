"""Downloads of backups: how many are under way at once."""

from __future__ import annotations

import asyncio
import re
from typing import NoReturn

import httpx
import pytest

from tarry.client.errors import Unavailable
from tarry.console.app import console_app
from tarry.console.guard import FORM_TOKEN
from tarry.console.pages import backups
from tests.console.test_guard import HOST, NOBODY
from tests.console.test_jobs import until


class SlowNodes:
    """A cluster that answers nothing until it is let go, and then that nobody leads."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0

    def operator(self) -> SlowNodes:
        return self

    async def status(self) -> NoReturn:
        self.asked += 1
        await self.go.wait()
        raise Unavailable("NO_LEADER", "no node leads")


async def test_no_more_downloads_begin_at_once_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def may_operate(_: object) -> None:
        return None

    nodes, app = SlowNodes(), console_app(NOBODY)
    monkeypatch.setattr(backups, "operators_look", may_operate)
    monkeypatch.setattr(backups, "client_of", lambda _: nodes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=HOST) as browser:
        page = (await browser.get("/sign-in")).text
        [token] = set(re.findall(rf'name="{FORM_TOKEN}" value="([0-9a-f]+)"', page))
        form = {FORM_TOKEN: token}
        asking = [
            asyncio.create_task(browser.post("/cluster/backups/download", data=form))
            for _ in range(backups.DOWNLOADS_MAX)
        ]
        await until(lambda: nodes.asked == backups.DOWNLOADS_MAX)
        one_more = asyncio.create_task(browser.post("/cluster/backups/download", data=form))
        await asyncio.wait((one_more,), timeout=5)
        nodes.go.set()
        answer = await one_more
        assert "downloads are under way" in answer.text
        assert answer.status_code == 503
        assert all("NO_LEADER" in answer.text for answer in await asyncio.gather(*asking))
        assert app.state.console.downloads.under_way == 0
    await app.state.console.accesses.close()
