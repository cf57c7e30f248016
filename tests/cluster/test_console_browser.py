"""The console's pages in a real browser, beside a real cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tarry.client import sync
from tarry.client.local.cluster import LocalCluster, Setting
from tests.cluster.browser import accessible, browser, needs_chromium, page_of, picture, shown
from tests.cluster.consoles import console_of
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.console.reports import write_run

pytestmark = [pytest.mark.beside, needs_chromium]
HOUR_MS = 3_600_000
BODY = b'{"order": 7, "note": "<img src=x onerror=alert(1)>"}'
PHONE = {"width": 360, "height": 740}


class Scene(NamedTuple):
    chromium: Any
    url: str
    cluster: LocalCluster
    message_id: str


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three nodes with some topics, a console, and a browser."""
    settings: dict[str, Setting] = {"consensus": STEADY}
    with Disposable(3, tmp_path_factory.mktemp("console"), settings) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        with sync.connect(cluster.addresses) as client, client.producer() as producer:
            first = producer.schedule("orders", BODY, delay_ms=HOUR_MS // 2, tags=["new"], keys=["order-7"])
            for at in range(60):
                producer.schedule_batch(
                    f"topic-{at:02d}", [b"x"] * (at + 1), delay_ms=[20_000 * (at % 40 + 1)] * (at + 1)
                )
            client.operator().create_group("orders", "mail")
            client.operator().create_group("orders", "call-centre")
        folder = tmp_path_factory.mktemp("given")
        write_run(folder, "one")
        given = ("--reports", str(folder), "--backups", str(folder))
        with console_of(cluster.addresses, *given) as url, browser() as chromium:
            yield Scene(chromium, url, cluster, first.id)


def pages(scene: Scene) -> dict[str, str]:
    return {
        "now": "/",
        "ahead": "/ahead",
        "topics": "/topics",
        "topic": "/topics/orders",
        "messages": "/messages/orders",
        "groups": "/groups",
        "group": "/topics/orders/mail",
        "search": "/message",
        "message": f"/message/{scene.message_id}",
        "cluster": "/cluster",
        "backups": "/cluster/backups",
        "audit": "/audit",
        "jobs": "/jobs",
        "found": "/search?q=or",
        "reconciliation": "/reconciliation",
        "run": "/reconciliation/one",
        "check": "/reconciliation/one/early",
        "sign-in": "/sign-in",
        "missing": "/nothing",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_opens_without_a_fault_and_is_accessible(scene: Scene, scheme: str) -> None:
    with page_of(scene.chromium, scene.url, color_scheme=scheme) as page:
        for name, path in pages(scene).items():
            page.goto(path)
            if page.locator("[data-chart]").count():
                page.wait_for_selector("[data-chart] canvas")
            accessible(page)
            picture(page, f"{name}-{scheme}")


def test_each_page_fits_a_phone(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url, viewport=PHONE) as page:
        for name, path in pages(scene).items():
            page.goto(path)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= PHONE["width"], (name, wide)
            picture(page, f"{name}-phone")


def test_pages_can_be_read_without_a_script(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url, java_script_enabled=False) as page:
        page.goto("/topics?filter=topic-1&sort=-pending")
        assert page.locator("#topics-table tbody tr").count() == 10
        assert page.locator("#topics-table tbody th").first.inner_text() == "topic-19"


def test_a_page_lives(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page, sync.connect(scene.cluster.addresses) as client:
        page.goto("/topics?filter=living")
        page.wait_for_selector("text=Nothing is found.")
        with client.producer() as producer:
            producer.schedule_batch("living", [b"x"] * 1_234, delay_ms=[HOUR_MS] * 1_234)
        page.wait_for_selector("#topics-table td:text-is('1,234')")


def test_the_filter_keeps_what_is_typed_and_goes_into_the_address(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page:
        page.goto("/topics")
        page.keyboard.press("/")
        page.keyboard.type("topic-4", delay=30)
        page.wait_for_url(re.compile("filter=topic-4"))
        shown(page.locator("#topics-table tbody tr")).to_have_count(10)
        page.keyboard.type("2")
        page.wait_for_url(re.compile("filter=topic-42"))
        shown(page.locator("#topics-table tbody tr")).to_have_count(1)
        assert page.evaluate("document.activeElement.id") == "topics-filter"
        assert page.input_value("#topics-filter") == "topic-42"
        shared = page.url
        page.wait_for_timeout(2_500)  # a look later it is still filtered
        assert page.locator("#topics-table tbody tr").count() == 1
    with page_of(scene.chromium, scene.url) as other:
        other.goto(shared)
        assert other.locator("#topics-table tbody tr").count() == 1


def test_what_is_typed_while_a_filter_is_answered_is_kept_and_asked_for(scene: Scene) -> None:
    held: list[Any] = []
    with page_of(scene.chromium, scene.url) as page:
        page.route(re.compile("filter=topi$"), lambda route: held.append(route))  # noqa: PLW0108
        page.goto("/topics")
        page.keyboard.press("/")
        with page.expect_request(re.compile("filter=topi$")):
            page.keyboard.type("topi")
        page.keyboard.type("c-42")
        held.pop().continue_()
        page.wait_for_url(re.compile("filter=topic-42"))
        shown(page.locator("#topics-table tbody tr")).to_have_count(1)
        assert page.evaluate("document.activeElement.id") == "topics-filter"
        assert page.input_value("#topics-filter") == "topic-42"
        assert page.evaluate("document.activeElement.selectionStart") == len("topic-42")


def test_tables_sort_and_page_by_links(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page:
        page.goto("/topics")
        page.click("#topics-table thead a:text-is('Topic')")
        assert page.locator("th[aria-sort='ascending']").inner_text().startswith("Topic")
        page.click("a[rel=next]")
        page.wait_for_url(re.compile("page=2"))
        names = page.locator("#topics-table tbody th").all_inner_texts()
        assert names == sorted(names)
        assert page.locator(".pages span").inner_text().startswith("page 2 of 2")


def test_keys_open_pages(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page:
        page.goto("/")
        for key, heading in {"t": "Topics", "c": "Cluster", "a": "Ahead", "g": "Groups", "n": "Now"}.items():
            page.keyboard.press("g")
            page.keyboard.press(key)
            page.wait_for_selector(f"h1:text-is('{heading}')")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"


def test_the_box_in_the_head_finds_messages_names_and_keys(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url, viewport=PHONE) as page:
        page.goto("/message")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
        page.keyboard.type(scene.message_id)
        page.keyboard.press("Enter")
        page.wait_for_selector(f"h1:has-text('{scene.message_id}')")
        page.fill("#search", "MAI")
        page.press("#search", "Enter")
        page.click("main a:text-is('mail')")
        page.wait_for_url(re.compile("/topics/orders/mail"))
        page.fill("#search", "orders order-7")
        page.press("#search", "Enter")
        page.click(f"main a:text-is('{scene.message_id}')")
        page.wait_for_selector(f"h1:has-text('{scene.message_id}')")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.goto(f"/search?q=orders+{'x' * 900}")
        page.wait_for_selector("text=No message that is kept has this key.")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_no_two_elements_of_a_page_have_one_id(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page:
        for name, path in {**pages(scene), "range": "/ahead?from=1&to=2"}.items():
            page.goto(path)
            ids = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
            assert sorted(set(ids)) == sorted(ids), name


def test_times_and_colors_are_as_chosen(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url, timezone_id="Asia/Kolkata", color_scheme="light") as page:
        page.goto(f"/message/{scene.message_id}")
        due = page.locator(".ahead time")
        utc = due.inner_text()
        assert utc.endswith("Z")
        page.click("#times")
        local = due.inner_text()
        assert local != utc
        page.click("#times")
        assert re.fullmatch(r"in \d+ minutes", due.inner_text())
        page.click("#theme")
        page.goto("/cluster")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.locator("#times").inner_text() == "relative"


def test_a_range_is_chosen_by_dragging(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page:
        page.goto("/ahead?span=900")
        shown(page.locator("#chart-ahead")).to_have_attribute("data-points", "900")
        whole = int(page.locator(".figure dd").first.inner_text().replace(",", ""))
        box = page.locator("#chart-ahead .u-over").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=5)
        page.mouse.up()
        page.wait_for_url(re.compile(r"from=\d+&to=\d+"))
        page.wait_for_selector("text=in the chosen range")
        part = int(page.locator(".figure dd").first.inner_text().replace(",", ""))
        assert 0 < part < whole
        page.wait_for_selector("#range-table")
        accessible(page)
        page.click("text=Show the whole span")
        page.wait_for_selector("text=in the span")


def test_a_range_that_is_being_typed_stays_as_the_page_lives(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url, viewport=PHONE) as page:
        page.goto("/ahead?span=900")
        start = page.get_attribute("#data-ahead", "data-start")
        page.fill("#from", "2100-01-01T00:00:00Z")
        page.press("#from", "Tab")
        assert page.evaluate("document.activeElement.id") == "to"
        shown(page.locator("#data-ahead")).not_to_have_attribute("data-start", start)
        assert page.input_value("#from") == "2100-01-01T00:00:00Z"


def test_what_is_due_in_a_range_is_cancelled_and_its_job_is_left_and_come_back_to(scene: Scene) -> None:
    with (
        page_of(scene.chromium, scene.url, viewport=PHONE) as page,
        sync.connect(scene.cluster.addresses) as client,
    ):
        with client.producer() as producer:
            producer.schedule_batch("ranged", [b"x"] * 3_000, delay_ms=[2_000_000] * 3_000)
        page.goto("/ahead?span=3600")
        page.wait_for_selector("#topics-table a:text-is('ranged')")  # a look that has it
        now_ms = client.operator().status().now_ms
        page.fill("#from", str(now_ms + 1_900_000))
        page.fill("#to", str(now_ms + 2_100_000))
        page.press("#to", "Enter")
        shown(page.locator("#range-table tr:has-text('ranged') td").first).to_have_text("3,000")
        page.fill("#cancel-topic", "ranged")
        page.press("#cancel-topic", "Enter")
        page.wait_for_selector("text=3,000 pending messages of ranged are due")
        page.click("button:text-is('Cancel them')")
        page.wait_for_selector("text=3,000 messages are cancelled.")
        accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        picture(page, "job-phone")
        page.click("a:text-is('go back to where it was started')")
        shown(page.locator("#range-table tr:has-text('ranged')")).to_have_count(0)
        page.goto("/jobs")
        page.click("text=Cancel in ranged")
        shown(page.locator(".badge")).to_have_text("done")


def test_a_change_is_asked_about_and_done(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page, sync.connect(scene.cluster.addresses) as client:
        page.goto("/topics/orders")
        page.fill("#field-pending_max", "5,000")
        page.fill("#field-back_off", "soon")
        page.click("text=Change…")
        assert "is no duration" in page.locator("strong.fault").inner_text()
        assert page.input_value("#field-pending_max") == "5,000"
        page.fill("#field-back_off", "1s,5s")
        page.click("text=Change…")
        assert "Pending at most, now 0, becomes 5,000." in page.inner_text("main")
        accessible(page)
        page.click("button:text-is('Change it')")
        page.wait_for_selector("h1:text-is('Settings changed')")
        described = client.operator().describe_topic("orders")
        assert described.settings["pending_max"] == 5_000
        assert described.settings["group_policy"] == {"back_off": (1_000, 5_000)}


def test_a_body_with_markup_is_text(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page:
        page.goto(f"/message/{scene.message_id}")
        assert page.locator("main img").count() == 0
        assert "onerror=alert(1)" in page.inner_text("pre")
        page.click("a:text-is('hex')")
        assert page.inner_text("pre").startswith("00000000  7b 22 6f")


def test_a_killed_leader_is_seen_without_a_reload(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page:
        page.goto("/")
        page.wait_for_selector("text=Nothing is wrong.")
        leader = page.locator(".figure dd").first.inner_text()
        scene.cluster.kill(leader)
        page.wait_for_selector(f".alarms li:has-text('{leader} does not answer')")
        shown(page.locator(".figure dd").first).not_to_have_text(re.compile(f"^({leader}|none)$"))
        picture(page, "leader-killed")
        scene.cluster.start(leader)
        shown(page.locator(f".alarms li:has-text('{leader} does not answer')")).to_have_count(0)


def test_updates_pause_and_go_on_and_keys_can_be_turned_off(scene: Scene) -> None:
    with page_of(scene.chromium, scene.url) as page, sync.connect(scene.cluster.addresses) as client:
        page.goto("/topics?filter=paused")
        page.wait_for_selector("text=Nothing is found.")
        page.click("#pause")
        page.click("#keys")
        with client.producer() as producer:
            producer.schedule("paused", b"x", delay_ms=HOUR_MS)
        page.wait_for_timeout(4_500)  # two looks
        assert page.locator("text=Nothing is found.").count() == 1
        page.keyboard.press("g")
        page.keyboard.press("c")
        page.click("#pause")
        page.wait_for_selector("#topics-table a:text-is('paused')")
        with client.producer() as producer:
            producer.schedule_batch("paused", [b"x"] * 4_320, delay_ms=[HOUR_MS] * 4_320)
        page.wait_for_selector("#topics-table td:text-is('4,321')")
        assert not page.locator("#away").is_visible()


def test_a_console_that_ends_is_told_on_the_page(scene: Scene) -> None:
    with console_of(scene.cluster.addresses) as url:
        window = scene.chromium.new_context(base_url=url)
        page = window.new_page()
        page.goto("/")
        page.wait_for_selector("#live table")
        assert page.locator("#away").is_hidden()
    page.wait_for_selector("#away", state="visible")
    window.close()
