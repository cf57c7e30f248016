"""The console beside a real cluster: what its pages show, who may do what, and what changes do."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tarry.client import sync
from tarry.client.errors import NotFound
from tarry.client.local.cluster import Setting
from tarry.client.results import MessageState
from tests.cluster.consoles import Visitor, console_of
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY

pytestmark = pytest.mark.beside

TOKENS: dict[str, Setting] = {
    "root": {"name": "ops", "produce": ["*"], "consume": ["*"], "operate": True},
    "shop": {"name": "shop", "produce": ["orders"], "consume": ["orders"]},
    "mail": {"name": "mail", "produce": ["orders"]},
}
BODY = b"<script>alert(1)</script>"


class Scene(NamedTuple):
    url: str
    client: sync.Client

    def visitor(self, token: str = "") -> Visitor:
        visitor = Visitor(self.url)
        if token:
            visitor.sign_in(token)
        return visitor


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    settings: dict[str, Setting] = {"tokens": TOKENS, "peer_token": "between-nodes", "consensus": STEADY}
    folder = tmp_path_factory.mktemp("console")
    with Disposable(3, folder, settings, token="root") as cluster:
        cluster.start()
        cluster.wait_until_serving()
        with (
            console_of(cluster.addresses, "--token", "root") as url,
            sync.connect(cluster.addresses, token="root") as client,
        ):
            with client.producer() as producer:
                producer.schedule("secret", b"x", delay_ms=3_600_000)
            yield Scene(url, client)


def schedule(scene: Scene, topic: str = "orders", body: bytes = BODY, delay_ms: int = 3_600_000) -> str:
    with scene.client.producer() as producer:
        return producer.schedule(topic, body, delay_ms=delay_ms, tags=["<i>tag"], properties={"<b>": "&"}).id


def test_who_has_not_signed_in_is_led_there_though_the_console_has_a_token(scene: Scene) -> None:
    visitor = scene.visitor()
    for path in (
        "/",
        "/ahead",
        "/topics",
        "/groups",
        "/cluster",
        "/topics/orders",
        "/message/x",
        "/messages/orders",
        "/search?q=x",
        "/audit",
        "/jobs",
        "/cluster/backups",
        "/reconciliation",
        "/live/now",
        "/live/jobs",
    ):
        answer = visitor.http.get(path, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/sign-in")
    assert "password" in visitor.get("/topics")
    assert "knows no such token" in visitor.sign_in("wrong", 403)
    assert "<h1>Topics</h1>" in visitor.sign_in("root", to="/topics")
    assert "<h1>Now</h1>" in scene.visitor().sign_in("root", to="//evil.example")
    assert "<h1>Now</h1>" in scene.visitor().sign_in("root", to="https://evil.example")
    visitor.post("/sign-out")
    assert "password" in visitor.get("/topics")


def test_a_token_sees_its_topics_and_a_body_only_with_the_right_to_consume(scene: Scene) -> None:
    message_id = schedule(scene)
    shop, mail, root = (scene.visitor(token) for token in ("shop", "mail", "root"))
    assert "secret" in root.get("/topics")
    for visitor in (shop, mail):
        page = visitor.get("/topics")
        assert "orders" in page
        assert "secret" not in page
        assert "Make a topic" not in page
        assert "read-only" in page
    assert "&lt;script&gt;alert(1)" in shop.get(f"/message/{message_id}")
    hidden = mail.get(f"/message/{message_id}")
    assert "alert(1)" not in hidden
    assert "who may consume orders" in hidden
    assert "secret" not in shop.get("/topics/secret", 404).replace("topic secret", "")


def test_messages_of_a_topic_are_listed_in_pages_as_a_form_chooses_them(scene: Scene) -> None:
    with scene.client.producer() as producer:
        given = producer.schedule_batch(
            "orders", [b"listed"] * 60, delay_ms=7_200_000, keys=[[f"listed-{at}"] for at in range(60)]
        ).ids
    visitor = scene.visitor("shop")
    assert '<a href="/messages/orders">' in visitor.get("/topics/orders")
    first = visitor.get("/messages/orders?key_prefix=listed-&state=pending")
    assert re.findall(r'<a href="/message/(\w+)">', first) == given[:50]
    [following] = re.findall(r'<a href="([^"]+)" rel="next">', first)
    second = visitor.get("/messages/orders" + html.unescape(following))
    assert re.findall(r'<a href="/message/(\w+)">', second) == given[50:]
    assert 'rel="next"' not in second
    schedule(scene)
    page = visitor.get("/messages/orders?tag=%3Ci%3Etag")
    assert "&lt;i&gt;tag" in page
    assert "<i>tag" not in page
    assert "Nothing is found." in visitor.get("/messages/orders?due_from=2100-01-01T00:00:00Z")
    for wrong in ("due_from=soon", "due_to=-99999999999999999999", "state=<b>", "state=settled"):
        page = visitor.get(f"/messages/orders?{wrong}", 400)
        assert 'aria-invalid="true"' in page
        assert "<b>" not in page
    visitor.get("/messages/orders?cursor=x", 409)
    visitor.get("/messages/orders?group=none", 404)
    assert "<table>" not in visitor.get("/messages/secret", 404)


def test_what_a_message_has_is_never_markup(scene: Scene) -> None:
    message_id = schedule(scene)
    visitor = scene.visitor("root")
    for form in ("text", "json", "hex", "", "<x>"):
        page = visitor.get(f"/message/{message_id}?as={form}")
        assert "<script>alert" not in page
        assert "<i>tag" not in page
        assert "<b>" not in page
    assert "3c 73 63 72 69 70 74" in visitor.get(f"/message/{message_id}?as=hex")


def test_who_may_not_operate_is_refused_by_the_cluster(scene: Scene) -> None:
    shop = scene.visitor("shop")
    for path, fields in {
        "/topics": {"topic": "new", "confirmed": "yes"},
        "/topics/orders/delete": {"confirmed": "yes"},
        "/topics/orders/purge": {"confirmed": "yes"},
        "/topics/orders/settings": {"retention_ms": "1h", "confirmed": "yes"},
        "/topics/orders/groups/new": {"group": "g", "confirmed": "yes"},
        "/cluster/transfer": {"confirmed": "yes"},
        "/cluster/settings": {"retention_ms": "1h", "confirmed": "yes"},
    }.items():
        assert "PERMISSION_DENIED" in shop.post(path, 403, **fields), path
    assert "new" not in [topic.topic for topic in scene.client.operator().status().topics]


def test_a_message_is_cancelled_and_sent_again_after_a_review(scene: Scene) -> None:
    visitor = scene.visitor("shop")
    message_id = schedule(scene)
    review = visitor.post(f"/message/{message_id}/cancel")
    assert "One message is cancelled" in review
    with scene.client.producer() as producer:
        assert producer.get(message_id).state is MessageState.PENDING
        _, told = visitor.change(f"/message/{message_id}/cancel")
        assert "No consumer gets it any more." in told
        assert producer.get(message_id).state is MessageState.CANCELLED
        _, again = visitor.change(f"/message/{message_id}/cancel")
        assert "It was cancelled before." in again
        _, sent = visitor.change(f"/message/{message_id}/send", delay="2h")
        [copy] = re.findall(r"<h1><code>(\w+)</code></h1>", sent)
        found = producer.get(copy)
        assert (found.body, found.tags, found.properties) == (BODY, ("<i>tag",), {"<b>": "&"})
    assert "is no duration" in visitor.post(f"/message/{message_id}/send", 400, delay="soon")
    assert "ID_MALFORMED" in visitor.get("/message/nonsense", 409)
    assert copy in visitor.get(f"/message?id=+{copy}+")


def test_what_is_searched_for_is_a_message_a_name_or_a_key(scene: Scene) -> None:
    message_id = schedule(scene)
    with scene.client.producer() as producer:
        keyed = producer.schedule("orders", b"x", delay_ms=3_600_000, keys=["sought-7"]).id
        secret = producer.schedule("secret", b"x", delay_ms=3_600_000, keys=["sought-7"]).id
    scene.client.operator().create_group("orders", "a-reader")
    shop = scene.visitor("shop")
    assert f"<h1><code>{message_id}</code></h1>" in shop.get(f"/search?q=+{message_id}+")
    found = shop.get(f"/search?q={secret}")
    assert "No topic&#39;s name has this in it." in found or "No topic's name has this in it." in found
    found = shop.get("/search?q=ORD")
    assert '<a href="/topics/orders">' in found
    reader = '<a href="/topics/orders/a-reader">'
    assert reader in shop.get_until("/search?q=read", reader)
    for query in ("q=orders+sought-7", "q=sought-7&topic=orders"):
        found = shop.get(f"/search?{query}")
        assert re.findall(r'href="/message/(\w+)"', found) == [keyed]
    assert secret not in shop.get("/search?q=sought-7&topic=secret")
    assert secret not in shop.get("/search?q=secret+sought-7")
    assert "secret" not in shop.get("/search?q=e").partition("<main")[2].partition("</main>")[0]
    assert "<b>" not in shop.get("/search?q=%3Cb%3E&topic=%3Cb%3E")
    assert "The box above" in shop.get("/search?q=")


def test_a_message_is_rescheduled_after_a_review_if_it_is_due_as_its_page_has_shown(scene: Scene) -> None:
    scene.client.operator().finish_upgrade()
    visitor, message_id = scene.visitor("mail"), schedule(scene)
    address = f"/message/{message_id}/reschedule"
    [shown] = re.findall(r'name="if_due" value="(\d+)"', visitor.get(f"/message/{message_id}"))
    review = visitor.post(address, due="2100-01-01T00:00:00Z", if_due=shown)
    assert "It is due 2100-01-01T00:00:00.000Z instead of" in review
    with scene.client.producer() as producer:
        assert producer.get(message_id).due_ms == int(shown)
        later_ms = int(shown) + 3_600_000
        for _ in range(2):  # the second page of two was shown before the first one's change
            _, told = visitor.change(address, due=str(later_ms), if_due=shown)
            assert "<h1>Rescheduled</h1>" in told
            assert producer.get(message_id).due_ms == later_ms
        _, told = visitor.change(address, due=str(later_ms + 1), if_due=shown)
        assert "due at another time by then" in told
        assert producer.get(message_id).due_ms == later_ms
        secret = schedule(scene, "secret")
        assert "There is no such message" in visitor.post(
            f"/message/{secret}/reschedule", due=shown, if_due=shown, confirmed="yes"
        )
        producer.cancel(message_id)
        assert 'name="if_due"' not in visitor.get(f"/message/{message_id}")
        _, told = visitor.change(address, due=shown, if_due=shown)
        assert "It was not rescheduled: it was cancelled." in told
    for wrong in ({"due": "soon", "if_due": shown}, {"due": shown}, {"due": "-99999999999", "if_due": shown}):
        assert "is no time" in visitor.post(address, 400, **wrong)
    assert "DUE_TOO_FAR" in visitor.post(address, 409, due=str(2**62), if_due=shown, confirmed="yes")


def test_a_message_s_page_tells_what_it_is_to_each_group_and_its_history_is_a_page_of_its_own(
    scene: Scene,
) -> None:
    scene.client.operator().create_group("orders", "billing")
    message_id = schedule(scene)
    visitor = scene.visitor("shop")
    page = visitor.get(f"/message/{message_id}")
    assert "billing" in page
    assert "it is not due yet; no consumer of the group is connected" in page
    history = visitor.get(f"/message/{message_id}/history")
    assert "scheduled" in history
    assert "ID_MALFORMED" in visitor.get("/message/nonsense/history", 409)
    scene.client.operator().delete_group("orders", "billing")


def test_a_topic_is_made_changed_and_deleted_after_a_review(scene: Scene) -> None:
    visitor, operator = scene.visitor("root"), scene.client.operator()
    visitor.change("/topics", topic="made")
    page = visitor.get("/topics/made")
    assert 'name="retention_ms"' in page
    review, _ = visitor.change(
        "/topics/made/settings",
        retention_ms="2h",
        pending_max="1,000",
        misfire_after_ms="1h",
        misfire="drop",
        attempts_max="3",
    )
    assert "Attempts, now not set, becomes 3." in review
    described = operator.describe_topic("made")
    assert (described.settings["retention_ms"], described.settings["pending_max"]) == (7_200_000, 1_000)
    assert described.settings["group_policy"] == {"attempts_max": 3}
    assert "there already" in visitor.post("/topics", 409, topic="made")  # and its settings stay
    assert operator.describe_topic("made").settings["retention_ms"] == 7_200_000
    visitor.change("/topics/made/settings", retention_ms="2h")  # without the policy's field: set no more
    assert operator.describe_topic("made").settings["group_policy"] == {}
    assert "Nothing changes" in visitor.post("/topics/made/settings", retention_ms="2h")
    wrong = visitor.post("/topics/made/settings", 400, retention_ms="<soon>", attempts_max="-3")
    assert wrong.count('<strong class="fault">') == 2
    assert 'value="&lt;soon&gt;"' in wrong
    assert "TOPIC_INVALID" in visitor.post("/topics", 409, topic="a b", confirmed="yes")
    schedule(scene, "made")
    review, told = visitor.change("/topics/made/purge")
    assert "1 pending and ready messages" in review
    assert "1 pending and 0 ready messages and 0 retries are cancelled" in told
    schedule(scene, "made")
    review, told = visitor.change("/topics/made/delete")
    assert "1 pending messages go with it" in review
    assert "with 0 released and 1 pending messages" in told
    with pytest.raises(NotFound):
        operator.describe_topic("made")
    visitor.get("/topics/made", 404)


def test_a_change_that_somebody_else_has_overtaken_is_asked_about_anew(scene: Scene) -> None:
    visitor, operator = scene.visitor("root"), scene.client.operator()
    operator.create_topic("shared", retention_ms=3_600_000)
    review = visitor.post("/topics/shared/settings", 200, retention_ms="2h")
    [before] = re.findall(r'name="before" value="(\w+)"', review)
    operator.change_topic("shared", group_policy={"attempts_max": 3})
    fields = {"retention_ms": "2h", "before": before, "confirmed": "yes"}
    again = visitor.post("/topics/shared/settings", 200, **fields)
    assert "Attempts, now 3, is set no more." in again
    assert operator.describe_topic("shared").settings["retention_ms"] == 3_600_000
    [before] = re.findall(r'name="before" value="(\w+)"', again)
    visitor.post("/topics/shared/settings", 200, **(fields | {"before": before}))
    assert operator.describe_topic("shared").settings["retention_ms"] == 7_200_000


def test_a_group_is_made_changed_moved_and_deleted_after_a_review(scene: Scene) -> None:
    visitor, operator = scene.visitor("root"), scene.client.operator()
    operator.create_topic("grouped")
    visitor.change("/topics/grouped/groups/new", group="readers", start="earliest")
    operator.create_group("grouped", "kept", expiry_ms=3_600_000)
    assert "there already" in visitor.post("/topics/grouped/groups/new", 409, group="kept", confirmed="yes")
    assert operator.describe_group("grouped", "kept").status.expiry_ms == 3_600_000
    schedule(scene, "grouped", delay_ms=0)
    with scene.client.consumer("grouped", "readers") as consumer:
        for message in consumer:
            message.ack()
            break
        page = visitor.get("/topics/grouped/readers")
        assert "127.0.0.1:" in page  # the consumer's address
    assert operator.describe_group("grouped", "readers").status.floor == 1
    review, told = visitor.change("/topics/grouped/readers/seek", to="earliest")
    assert "1 messages that it has acknowledged are delivered again" in review
    assert "is at offset 0" in told
    visitor.change("/topics/grouped/readers/seek", to="1")
    assert operator.describe_group("grouped", "readers").status.floor == 1
    assert "is no time" in visitor.post("/topics/grouped/readers/seek", 400, to="soon")
    visitor.change("/topics/grouped/readers/policy", back_off="1s,5s", lease_ms="1m")
    assert operator.describe_group("grouped", "readers").own == {
        "back_off": (1_000, 5_000),
        "lease_ms": 60_000,
    }
    visitor.change("/topics/grouped/readers/policy", lease_ms="1m")
    assert operator.describe_group("grouped", "readers").own == {"lease_ms": 60_000}
    assert "readers" in visitor.get("/groups?filter=READ")
    visitor.change("/topics/grouped/readers/delete")
    visitor.get("/topics/grouped/readers", 404)


def test_dead_letters_are_counted_and_given_back(scene: Scene) -> None:
    visitor, operator = scene.visitor("root"), scene.client.operator()
    operator.create_topic("doomed", group_policy={"attempts_max": 1})
    schedule(scene, "doomed", delay_ms=0)
    with scene.client.consumer("doomed", "g") as consumer:
        for message in consumer:
            message.nack()
            break
    letters = "dlq.g.doomed"
    with scene.client.consumer(letters, "watcher") as consumer:
        next(iter(consumer)).ack()
    assert "Redrive" in visitor.get(f"/topics/{letters}")
    review, told = visitor.change(f"/topics/{letters}/redrive", reason="NACKED")
    assert "1 of the first 1 dead letters go back" in review
    assert "1 of 1 dead letters went back" in told
    assert "is no whole number" in visitor.post(f"/topics/{letters}/redrive", 400, most="many")


def test_a_message_is_found_by_its_idempotency_key(scene: Scene) -> None:
    scene.client.operator().finish_upgrade()
    visitor = scene.visitor("shop")
    with scene.client.producer() as producer:
        ids = [
            producer.schedule(topic, b"x", delay_ms=3_600_000, idempotency_key="<b>&").id
            for topic in ("orders", "secret")
        ]
    page = visitor.get("/message?topic=orders&idempotency_key=%3Cb%3E%26")
    assert f"<h1><code>{ids[0]}</code></h1>" in page
    assert "&lt;b&gt;&amp;</td>" in page
    assert "<b>" not in page
    page = visitor.get("/message?topic=orders&idempotency_key=%3Cb%3E")
    assert "No message that is kept has this key." in page
    assert ids[1] not in visitor.get("/message?topic=secret&idempotency_key=%3Cb%3E%26", 404)


def test_leadership_is_transferred_and_settings_changed_after_a_review(scene: Scene) -> None:
    visitor, operator = scene.visitor("root"), scene.client.operator()
    before = operator.status()
    target = next(member.node for member in before.members if member.node != before.leader)
    review, told = visitor.change("/cluster/transfer", target=target)
    assert f"{before.leader} hands leadership to {target}" in review
    assert f"{target} leads" in told
    visitor.change("/cluster/settings", attempts_max="9", retention_ms="4d")
    assert operator.describe_cluster().own["attempts_max"] == 9
    visitor.change("/cluster/settings", attempts_max="")
    assert "attempts_max" not in operator.describe_cluster().own
    assert "MEMBERSHIP_REFUSED" in visitor.post("/cluster/remove", 409, node="n9", confirmed="yes")
    _, finished = visitor.change("/cluster/upgrade")
    assert f"at level {operator.status().level}" in finished


def test_a_page_lives_and_its_stream_ends_with_the_visit(scene: Scene) -> None:
    visitor = scene.visitor("root")
    events: list[str] = []
    nodes: list[str] = []
    with visitor.http.stream("GET", "/live/now?sort=-node") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            nodes += re.findall(r'<th scope="row">(n\d)</th>', line)
            if line.startswith("event:"):
                events.append(line)
            if len(events) == 3:
                break
    assert events == ["event: look"] * 3
    assert nodes[:6] == ["n3", "n2", "n1", "n3", "n2", "n1"]
    with visitor.http.stream("GET", "/live/topics/orders") as stream:
        visitor.post("/sign-out")
        assert "event: look" in "".join(stream.iter_lines())  # and it ends


def test_the_next_hour_is_shown_by_second(scene: Scene) -> None:
    schedule(scene, "soon", delay_ms=200_000)
    visitor, deadline = scene.visitor("root"), time.monotonic() + 20
    while True:
        [points] = re.findall(r"data-points='(\[[\d, ]+\])'", visitor.get("/ahead"))
        if sum(json.loads(points)) == 1:
            return
        assert time.monotonic() < deadline
        time.sleep(0.5)  # what is shown is two seconds old at most
