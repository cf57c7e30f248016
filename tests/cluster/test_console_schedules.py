"""The console's pages of schedules that recur, beside a real cluster, without and with a browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tarry.client import sync
from tarry.client.aio import Cron, Interval
from tarry.client.errors import NotFound
from tarry.client.local.cluster import Setting
from tests.cluster.browser import accessible, browser, needs_chromium, page_of, picture, shown
from tests.cluster.consoles import Visitor, console_of
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY

pytestmark = pytest.mark.beside

TOKENS: dict[str, Setting] = {
    "root": {"name": "ops", "produce": ["*"], "consume": ["*"], "operate": True},
    "shop": {"name": "shop", "produce": ["orders"], "consume": ["orders"]},
    "mail": {"name": "mail", "produce": ["orders"]},
}
DAY_MS = 86_400_000
DAILY = Cron("0 2 * * *", "Europe/Berlin")
BODY = b"<script>alert(1)</script>"
PHONE = {"width": 360, "height": 740}


class Scene(NamedTuple):
    url: str
    client: sync.Client

    def visitor(self, token: str) -> Visitor:
        visitor = Visitor(self.url)
        visitor.sign_in(token)
        return visitor

    def put(self, name: str, topic: str = "orders") -> None:
        self.client.recurring().put(name, topic, BODY, timing=DAILY, tags=["<i>tag"])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    settings: dict[str, Setting] = {"tokens": TOKENS, "peer_token": "between-nodes", "consensus": STEADY}
    folder = tmp_path_factory.mktemp("console")
    with Disposable(3, folder, settings, token="root") as cluster:
        cluster.start()
        cluster.wait_until_serving()
        with (
            console_of(cluster.addresses) as url,
            sync.connect(cluster.addresses, token="root") as client,
        ):
            client.operator().finish_upgrade()
            scene = Scene(url, client)
            scene.put("secret", "secret")
            for number in range(60):
                timing = Interval(DAY_MS + number * 1_000)
                client.recurring().put(f"daily-{number:02d}", "orders", BODY, timing=timing)
            yield scene


def names_in(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/schedules/([^"]+)">', page)


def test_schedules_are_listed_in_pages_that_sort_and_filter(scene: Scene) -> None:
    visitor = scene.visitor("root")
    page = visitor.get("/schedules")
    assert names_in(page) == [f"daily-{number:02d}" for number in range(50)]
    assert "every 1d" in page
    assert names_in(visitor.get("/schedules?page=2"))[-1] == "secret"
    assert names_in(visitor.get("/schedules?sort=-next_ms&filter=daily"))[0] == "daily-59"
    assert names_in(visitor.get("/schedules?filter=berlin")) == ["secret"]
    assert names_in(visitor.get("/schedules?prefix=daily-1")) == [f"daily-1{number}" for number in range(10)]
    assert names_in(visitor.get("/schedules?topic=secret")) == ["secret"]
    assert "Nothing is found." in visitor.get("/schedules?filter=nowhere")
    assert "There is nothing." in visitor.get("/schedules?prefix=nowhere")
    assert "<h1>Schedules</h1>" in visitor.get("/schedules?prefix=" + "x" * 1_900)


def test_one_of_an_unknown_topic_or_name_is_told_in_words(scene: Scene) -> None:
    shop = scene.visitor("shop")
    assert "PERMISSION_DENIED" in shop.get("/schedules?topic=secret")
    assert "RECURRING_UNKNOWN" in shop.get("/schedules/nowhere", 404)
    assert "RECURRING_UNKNOWN" in shop.get("/schedules/secret", 404)
    assert "secret" not in names_in(shop.get("/schedules?page=2"))


def test_who_has_not_signed_in_is_led_there(scene: Scene) -> None:
    visitor = Visitor(scene.url)
    for path in ("/schedules", "/schedules/daily-00", "/live/schedules", "/live/schedules/daily-00"):
        answer = visitor.http.get(path, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/sign-in")


def test_a_schedule_shows_its_fires_and_its_body_to_who_may_consume(scene: Scene) -> None:
    scene.put("shown")
    made = scene.client.recurring().trigger("shown")
    page = scene.visitor("shop").get("/schedules/shown")
    assert "0 2 * * * (Europe/Berlin)" in page
    assert len(re.findall(r"T0[23]:00:00\+0[12]:00", page)) == 10
    assert f'<a href="/message/{made.id}">' in page
    assert "&lt;script&gt;alert(1)" in page
    assert "&lt;i&gt;tag" in page
    assert "Delete it…" in page
    hidden = scene.visitor("mail").get("/schedules/shown")
    assert "alert(1)" not in hidden
    assert "who may consume orders" in hidden
    scene.client.recurring().delete("shown")


def test_a_schedule_is_paused_resumed_triggered_and_deleted_after_a_review(scene: Scene) -> None:
    scene.put("changed")
    recurring, visitor = scene.client.recurring(), scene.visitor("shop")
    review, done = visitor.change("/schedules/changed/pause")
    assert "fires no more until it is resumed" in review
    assert recurring.get("changed").paused
    assert "Pause: done" in done
    assert "Resume it…" in visitor.get("/schedules/changed")
    review, done = visitor.change("/schedules/changed/resume")
    assert "first fire after now" in review
    assert "Its next fire is" in done
    assert not recurring.get("changed").paused
    review, done = visitor.change("/schedules/changed/trigger")
    assert "goes to topic orders now" in review
    assert recurring.get("changed").triggered == 1
    assert recurring.get("changed").history[0].id in done
    review, done = visitor.change("/schedules/changed/delete")
    assert "Nothing brings it back." in review
    assert "changed is gone." in done
    with pytest.raises(NotFound):
        recurring.get("changed")


@pytest.mark.parametrize("what", ["pause", "resume", "delete", "trigger"])
def test_a_change_that_another_has_overtaken_is_reviewed_anew(scene: Scene, what: str) -> None:
    scene.put("overtaken")
    recurring, visitor = scene.client.recurring(), scene.visitor("shop")
    path = f"/schedules/overtaken/{what}"
    review = visitor.post(path)
    [agreed] = re.findall(r'name="agreed" value="(\d+)"', review)
    if what == "trigger":
        recurring.trigger("overtaken")
    else:
        recurring.pause("overtaken")
    before = recurring.get("overtaken")
    again = visitor.post(path, confirmed="yes", agreed=agreed)
    assert "changed or triggered meanwhile; nothing is done yet" in again
    assert recurring.get("overtaken") == before
    [renewed] = re.findall(r'name="agreed" value="(\d+)"', again)
    assert int(renewed) == int(agreed) + 1
    assert "done" in visitor.post(path, confirmed="yes", agreed=renewed)
    if what != "delete":
        recurring.delete("overtaken")


def test_a_form_that_is_not_the_reviews_changes_nothing(scene: Scene) -> None:
    scene.put("kept")
    visitor, before = scene.visitor("shop"), scene.client.recurring().get("kept")
    for agreed in ("", "x", "-1", "9" * 30):
        assert "Not done" in visitor.post("/schedules/kept/pause", 400, confirmed="yes", agreed=agreed)
    visitor.post("/schedules/kept/pause", 409, confirmed="yes", agreed="9" * 20)  # no revision is so high
    visitor.post("/schedules/secret/delete", 404, confirmed="yes", agreed="1")
    assert scene.client.recurring().get("kept") == before
    assert scene.client.recurring().get("secret").revision == 1
    scene.client.recurring().delete("kept")


def test_a_topic_leads_to_its_schedules_which_go_with_it(scene: Scene) -> None:
    scene.put("gone-1", "short")
    scene.put("gone-2", "short")
    visitor = scene.visitor("root")
    scene.client.operator().create_topic("short")
    assert '<a href="/schedules?topic=short">' in visitor.get("/topics/short")
    review, done = visitor.change("/topics/short/delete")
    assert "So do 2 schedules that send to it." in review
    assert "2 schedules." in done
    assert names_in(visitor.get("/schedules?prefix=gone")) == []


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_are_accessible_and_fit_a_phone(scene: Scene, scheme: str) -> None:
    scene.put("seen")
    scene.client.recurring().trigger("seen")
    with browser() as chromium:
        for viewport in (None, PHONE):
            size = {} if viewport is None else {"viewport": viewport}
            with page_of(chromium, scene.url, color_scheme=scheme, **size) as page:
                page.goto("/sign-in")
                page.fill("#token", "root")
                page.click("main button")
                for name, path in {"schedules": "/schedules", "schedule": "/schedules/seen"}.items():
                    page.goto(path)
                    page.wait_for_selector("h1")
                    accessible(page)
                    picture(page, f"{name}-{scheme}" + ("" if viewport is None else "-phone"))
                    if viewport is not None:
                        wide = page.evaluate("document.documentElement.scrollWidth")
                        assert wide <= PHONE["width"], (name, wide)
                page.click("text=Trigger it…")
                accessible(page)
    scene.client.recurring().delete("seen")


@needs_chromium
def test_the_pages_live(scene: Scene) -> None:
    recurring = scene.client.recurring()
    with browser() as chromium, page_of(chromium, scene.url) as page:
        page.goto("/sign-in")
        page.fill("#token", "root")
        page.click("main button")
        page.goto("/schedules?prefix=living")
        page.wait_for_selector("text=There is nothing.")
        start_ms = time.time_ns() // 1_000_000 + 1_000
        recurring.put("living", "orders", timing=Interval(1_000), start_ms=start_ms)
        page.wait_for_selector("#schedules-table th a:text-is('living')")
        page.click("text=living")
        page.wait_for_selector("h1:text-is('living')")
        fired = page.locator(".figure:has(dt:text-is('Fired')) dd")
        before = int(fired.inner_text())
        shown(fired).not_to_have_text(str(before))
        page.keyboard.press("g")
        page.keyboard.press("s")
        page.wait_for_selector("h1:text-is('Schedules')")
        page.goto("/schedules/living")
        recurring.delete("living")
        page.wait_for_selector("text=The schedule is gone.")
