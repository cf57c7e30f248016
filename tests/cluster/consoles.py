"""The console as a process of its own, beside a real cluster."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import httpx

from tarry.console.guard import FORM_TOKEN

END_S = 20
JOB_S = 40.0
LOOK_S = 10.0


@contextmanager
def console_of(servers: str, *arguments: str, errors: IO[bytes] | None = None) -> Iterator[str]:
    """Run ``tarry console`` on a free port, and yield its address. ``errors``: takes what it writes there."""
    command = [sys.executable, "-m", "tarry.node", "console", "--listen", "127.0.0.1:0", "-o", "json"]
    process = subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, "TARRY_SERVER": servers},
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0
    finally:
        process.kill()
        process.communicate()


def ended(visitor: Visitor, page: str) -> str:
    """Return the page of a job once it has ended, from its page as it was."""
    [address] = re.findall(r'sse-connect="/live(/jobs/\w+)"', page)
    ends_s = time.monotonic() + JOB_S
    while re.search(r'class="badge \w+">(running|stopping)<', page) and time.monotonic() < ends_s:
        page = visitor.get(address)
    return page


class Visitor:
    """One who reads pages and sends forms, without a script."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, follow_redirects=True, timeout=30)

    def get(self, path: str, code: int = 200) -> str:
        """Return a page."""
        answer = self.http.get(path)
        assert answer.status_code == code, answer.text
        return answer.text

    def get_until(self, path: str, shown: str) -> str:
        """Return a page once it shows a text, or after a while as it is: a look is 2 s old at most."""
        ends_s = time.monotonic() + LOOK_S
        while shown not in (page := self.get(path)) and time.monotonic() < ends_s:
            time.sleep(0.1)
        return page

    def post(self, path: str, code: int = 200, /, **fields: str) -> str:
        """Send a form, and return the page that comes."""
        page = self.http.get("/sign-in").text
        [token] = set(re.findall(rf'name="{FORM_TOKEN}" value="([0-9a-f]+)"', page))
        answer = self.http.post(path, data={**fields, FORM_TOKEN: token})
        assert answer.status_code == code, answer.text
        return answer.text

    def change(self, path: str, **fields: str) -> tuple[str, str]:
        """Send a form, agree, and return the review and the page that tells what was done."""
        review = self.post(path, 200, **fields)
        found = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', review))
        assert found["confirmed"] == "yes"
        sent = {name: html.unescape(value) for name, value in found.items() if name != FORM_TOKEN}
        return review, self.post(path, 200, **sent)

    def sign_in(self, token: str, code: int = 200, to: str = "/") -> str:
        """Sign in, and return the page that comes."""
        return self.post("/sign-in", code, token=token, next=to)
