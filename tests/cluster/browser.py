"""A real browser for tests of the console: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parents[1] / "console" / "axe.min.js"
PICTURES = Path(__file__).parents[2] / "out" / "console"
WAIT_MS = 20_000

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")


@contextmanager
def browser() -> Iterator[Any]:
    """Run the browser; it talks to loopback only."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            ],
        )
        try:
            yield chromium
        finally:
            chromium.close()


@contextmanager
def page_of(chromium: Any, url: str, **context: Any) -> Iterator[Any]:
    """Open a page in a window of its own; what it complains of, it must not."""
    window = chromium.new_context(base_url=url, **context)
    window.set_default_timeout(WAIT_MS)
    page = window.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if _matters(message) else None)
    try:
        yield page
    finally:
        window.close()
    assert complaints == []


def _matters(message: Any) -> bool:
    """Say whether a message is a fault of the page; an answer with an error's code is not."""
    return (
        message.type in {"error", "warning"} and "the server responded with a status of" not in message.text
    )


def shown(locator: Any) -> Any:
    """Return what expects something of an element, and waits for it."""
    from playwright.sync_api import expect

    expect.set_options(timeout=WAIT_MS)
    return expect(locator)


def accessible(page: Any) -> None:
    """Check the page with axe-core: WCAG 2.1, levels A and AA."""
    page.evaluate(AXE.read_text())
    found = page.evaluate(
        "async () => (await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}))"
        ".violations.map(one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 200)).join(' | '))"
    )
    assert found == [], page.url


def picture(page: Any, name: str) -> None:
    """Keep a picture of the page."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
