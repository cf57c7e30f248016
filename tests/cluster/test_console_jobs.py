"""What goes on in the console when its page is left: cancels of a range; and the nodes' audit logs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tarry.client import sync
from tarry.client.cli.times import time_text
from tarry.client.local.cluster import LocalCluster, Setting, toml
from tarry.client.results import MessageState
from tests.cluster.consoles import Visitor, console_of, ended
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY

pytestmark = pytest.mark.beside

TOKENS: dict[str, Setting] = {
    "root": {"name": "ops", "produce": ["*"], "consume": ["*"], "operate": True},
    "shop": {"name": "shop", "produce": ["orders"], "consume": ["orders"]},
}
MANY = 10_000


class Scene(NamedTuple):
    url: str
    client: sync.Client
    cluster: LocalCluster

    def visitor(self, token: str) -> Visitor:
        visitor = Visitor(self.url)
        visitor.sign_in(token)
        return visitor


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three nodes with tokens, of which two keep audit logs, and a console."""
    settings: dict[str, Setting] = {"tokens": TOKENS, "peer_token": "between-nodes", "consensus": STEADY}
    folder = tmp_path_factory.mktemp("jobs")
    cluster = Disposable(3, folder, settings, token="root")
    for name in ("n1", "n2"):
        with cluster.nodes[name].config.open("a") as config:
            config.write("\n".join(("", *toml({"audit": {"file": str(folder / f"{name}.audit")}}))))
    with cluster:
        cluster.start()
        cluster.wait_until_serving()
        with (
            console_of(cluster.addresses) as url,
            sync.connect(cluster.addresses, token="root") as client,
        ):
            yield Scene(url, client, cluster)


def test_what_a_topic_has_in_a_range_is_counted_and_cancelled_by_a_job(scene: Scene) -> None:
    now_ms = int(time.time() * 1_000)
    from_ms, to_ms = (now_ms // 1_000 + 600) * 1_000, (now_ms // 1_000 + 900) * 1_000
    due_ms = [from_ms - 1, from_ms, from_ms + 1, to_ms - 1, to_ms]
    with scene.client.producer() as producer:
        ids = producer.schedule_batch("orders", [b"x"] * 5, due_ms=due_ms).ids
        producer.schedule_batch("secret", [b"x"] * 2, due_ms=[from_ms] * 2)
    visitor, span = scene.visitor("shop"), {"from": time_text(from_ms), "to": time_text(to_ms)}
    page = visitor.http.get("/ahead", params={"span": "3600", **span}).text
    table = page.partition('id="range-table"')[2].partition("</table>")[0]
    assert re.findall(r'<td class="number">([^<]+)</td>', table) == ["3"]
    assert "secret" not in table
    assert visitor.http.get("/ahead", params={"span": "3600"}).text.count("range-table") == 0
    asked = {"topic": "orders", "span": "3600", **span}
    review = visitor.post("/ahead/cancel", **asked)
    assert "3 pending messages of orders are due from" in review
    with scene.client.producer() as producer:
        assert producer.get(ids[1]).state is MessageState.PENDING
        _, job = visitor.change("/ahead/cancel", **asked)
        page = ended(visitor, job)
        assert "3 messages are cancelled." in page
        assert 'badge good">done' in page
        assert "Go on with it" not in page
        states = [producer.get(each).state for each in ids]
        assert states == [MessageState.PENDING, *[MessageState.CANCELLED] * 3, MessageState.PENDING]
    assert "Cancel in orders" in visitor.get("/jobs")
    other = scene.visitor("root")
    assert "Cancel in orders" not in other.get("/jobs")
    [address] = re.findall(r'sse-connect="/live(/jobs/\w+)"', page)
    other.get(address, 404)
    other.post(f"{address}/stop", 404)
    visitor.post(f"{address}/on", 409)
    again = scene.visitor("shop")
    assert "3 messages are cancelled." in again.get(address)


def test_a_job_is_stopped_and_gone_on_with_where_it_was(scene: Scene) -> None:
    now_ms = int(time.time() * 1_000)
    with scene.client.producer() as producer:
        for _ in range(10):
            producer.schedule_batch("orders", [b"x"] * MANY, due_ms=[now_ms + 7_200_000] * MANY)
    visitor = scene.visitor("shop")
    asked = {"topic": "orders", "from": str(now_ms + 7_100_000), "to": str(now_ms + 7_300_000)}
    assert f"{10 * MANY:,} pending" in visitor.post("/ahead/cancel", **asked)
    page = visitor.post("/ahead/cancel", **asked, confirmed="yes")
    [address] = re.findall(r'sse-connect="/live(/jobs/\w+)"', page)
    page = ended(visitor, visitor.post(f"{address}/stop"))
    assert 'badge warn">stopped' in page
    [before] = re.findall(r"([\d,]+) messages are cancelled", page)
    assert 0 < int(before.replace(",", "")) < 10 * MANY
    page = ended(visitor, visitor.post(f"{address}/on"))
    assert f"{10 * MANY:,} messages are cancelled." in page
    assert 'badge good">done' in page
    visitor.post(f"{address}/on", 409)


def test_a_cancel_that_makes_no_sense_or_is_not_the_visitor_s_starts_no_job(scene: Scene) -> None:
    visitor = scene.visitor("shop")
    good = {"from": "2100-01-01T00:00:00Z", "to": "2100-01-01T00:00:01Z", "confirmed": "yes"}
    visitor.post("/ahead/cancel", 404, **good, topic="secret")
    visitor.post("/ahead/cancel", 404, **good, topic="none-such")
    visitor.post("/ahead/cancel", 400, **good)
    visitor.post("/ahead/cancel", 400, **good | {"topic": "orders", "to": good["from"]})
    visitor.post("/ahead/cancel", 400, **good | {"topic": "orders", "from": "<b>"})
    assert "2100" not in visitor.get("/jobs")
    answer = visitor.http.post("/ahead/cancel", data={**good, "topic": "orders"})
    assert answer.status_code == 403  # a form of another site


def test_operators_calls_of_all_nodes_are_shown_by_who_what_and_when(scene: Scene, tmp_path: Path) -> None:
    operator = scene.client.operator()
    scene.client.operator().transfer("n1" if operator.status().leader != "n1" else "n2")
    operator.create_topic("audited")
    operator.delete_topic("audited")
    visitor = scene.visitor("root")
    page = visitor.get("/audit?what=CreateTopic&who=ops")
    assert page.count("&#34;topic&#34;: &#34;audited&#34;") == 1
    assert 'badge good">OK' in page
    assert "DeleteTopic" not in page.partition("calls-title")[2]
    assert "n3 writes no audit log" in page
    assert "There is nothing." in visitor.get("/audit?who=nobody")
    assert "There is nothing." in visitor.get("/audit?from=2100-01-01T00:00:00Z")
    assert "is no time" in visitor.get("/audit?from=<b>", 400)
    everything = visitor.get("/audit").partition("calls-title")[2]
    assert "DeleteTopic" in everything
    assert "ReadAudit" not in everything
    assert "ReadAudit" in visitor.get("/audit?what=ReadAudit").partition("calls-title")[2]
    shop = scene.visitor("shop")
    assert "PERMISSION_DENIED" in shop.get("/audit", 403)
    assert 'href="/audit"' not in shop.get("/")
    assert 'href="/audit"' in visitor.get("/")
