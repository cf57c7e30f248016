"""RocketMQ's protocol against a real cluster: raw calls, as its clients make them, differences included."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tarry.client.aio import Exponential, connect
from tarry.client.local.cluster import LocalCluster
from tarry.client.settings import Settings, parse_servers
from tarry.gateway.rocketmq.call import Call, Gateway
from tarry.gateway.rocketmq.config import Config, Limits
from tarry.gateway.rocketmq.consumer_calls import receive
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.routes import Routes
from tests.cluster.test_upgrade import level
from tests.gateway.rocketmq_calls import HEADERS, Calls, code, gateway_calls, message, milliseconds

pytestmark = pytest.mark.beside

HOUR_MS = 3_600_000
CONFIG = Config(
    limits=Limits(invisible_ms_min=200, renewed_lease_ms=2_000),
    fifo_groups=["in-order"],
    secrets=["that two gateways share"],
)


def settings(cluster: LocalCluster) -> Settings:
    return Settings(servers=parse_servers(cluster.addresses))


@pytest.fixture
async def call(shared_cluster: LocalCluster) -> AsyncIterator[Calls]:
    await level(shared_cluster, 2)
    async with gateway_calls(settings(shared_cluster), CONFIG) as address, Calls(address) as calls:
        yield calls


@pytest.fixture
async def other(shared_cluster: LocalCluster) -> AsyncIterator[Calls]:
    """Calls to another gateway, which knows nothing of the first."""
    async with gateway_calls(settings(shared_cluster), CONFIG) as address, Calls(address) as calls:
        yield calls


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def sent(call: Calls, *messages: definition.Message) -> list[Any]:
    answer = await call.send(*messages)
    assert code(answer.status) == "OK", answer.status.message
    assert [code(entry.status) for entry in answer.entries] == ["OK"] * len(messages)
    return list(answer.entries)


async def received(call: Calls, topic: str, **more: Any) -> list[definition.Message]:
    status, messages = await call.receive(topic, **more)
    assert status == "OK", status
    return messages


async def test_a_message_comes_with_all_that_was_sent(call: Calls) -> None:
    first = message(
        "whole",
        b"\x00pay",
        tag="paid",
        keys=["k1", "k2"],
        properties={"colour": "red", "größe": "ü"},
        trace_context="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    began_ms = now_ms()
    (entry,) = await sent(call, first)
    assert entry.message_id == entry.transaction_id == first.system_properties.message_id
    assert entry.recall_handle == ""
    told = [each async for each in call.received("whole")]
    assert [each.WhichOneof("content") for each in told] == ["status", "message", "delivery_timestamp"]
    got, system = told[1].message, told[1].message.system_properties
    assert (got.topic.name, got.body, dict(got.user_properties)) == (
        "whole",
        b"\x00pay",
        {"colour": "red", "größe": "ü"},
    )
    assert (system.tag, list(system.keys), system.message_id) == ("paid", ["k1", "k2"], entry.message_id)
    assert (system.message_type, system.body_encoding) == (definition.NORMAL, definition.IDENTITY)
    assert system.body_digest == definition.Digest(
        type=definition.MD5, checksum=hashlib.md5(b"\x00pay").hexdigest().upper()
    )
    assert (system.delivery_attempt, system.born_host) == (1, "10.0.0.7")
    assert system.trace_context == first.system_properties.trace_context
    assert not system.HasField("delivery_timestamp")
    assert not system.HasField("message_group")
    assert milliseconds(system.invisible_duration) == 10_000
    for time_of in (system.born_timestamp, system.store_timestamp, told[2].delivery_timestamp):
        assert began_ms - 1_000 <= milliseconds(time_of) <= now_ms() + 1_000
    assert await call.ack("whole", got) == ["OK"]


async def test_delayed_messages_are_not_early_and_whole_seconds_of_python_are_taken(call: Calls) -> None:
    due_ms = now_ms() + 1_500
    seconds = due_ms // 1_000 + 1
    (exact,) = await sent(call, message("delayed", b"exact", due_ms=due_ms))
    (whole,) = await sent(call, message("delayed", b"whole", due_ms=seconds * 1_000))
    assert exact.recall_handle
    assert whole.recall_handle
    dues = {b"exact": due_ms, b"whole": seconds * 1_000}
    while dues:
        for got in await received(call, "delayed"):
            due_ms = dues.pop(got.body)
            assert now_ms() >= due_ms
            assert got.system_properties.message_type == definition.DELAY
            assert milliseconds(got.system_properties.delivery_timestamp) == due_ms
            await call.ack("delayed", got)


async def test_a_time_that_is_past_is_now_and_cannot_be_recalled(call: Calls) -> None:
    (entry,) = await sent(call, message("past", due_ms=now_ms() - HOUR_MS))
    assert entry.recall_handle == ""
    assert len(await received(call, "past")) == 1


async def test_a_delay_beyond_a_day_is_taken(call: Calls) -> None:
    (entry,) = await sent(call, message("years", due_ms=now_ms() + 9_000 * 24 * HOUR_MS))
    assert code((await call.recall("years", entry.recall_handle)).status) == "OK"
    refused = await call.send(message("years", due_ms=now_ms() + 90_000 * 24 * HOUR_MS))
    assert code(refused.status) == "ILLEGAL_DELIVERY_TIME"


async def test_a_recall_is_definite_at_any_gateway(call: Calls, other: Calls) -> None:
    first = message("recalled", b"recalled", due_ms=now_ms() + 1_000)
    (entry,) = await sent(call, first)
    answer = await other.recall("recalled", entry.recall_handle)
    assert (code(answer.status), answer.message_id) == ("OK", first.system_properties.message_id)
    assert code((await call.recall("recalled", entry.recall_handle)).status) == "OK"
    assert code((await call.recall("others", entry.recall_handle)).status) == "BAD_REQUEST"
    (entry,) = await sent(call, message("recalled", b"comes", due_ms=now_ms() + 1_200))
    (got,) = await received(call, "recalled")
    assert got.body == b"comes"
    assert code((await call.recall("recalled", entry.recall_handle)).status) == "MESSAGE_NOT_FOUND"
    await call.ack("recalled", got)
    assert code((await call.recall("recalled", entry.recall_handle)).status) == "MESSAGE_NOT_FOUND"


async def test_a_recall_holds_while_the_message_waits_for_its_next_attempt(call: Calls) -> None:
    (entry,) = await sent(call, message("waiting", due_ms=now_ms() + 300))
    (got,) = await received(call, "waiting", push=True)
    assert code((await call.change("waiting", got, 2_000)).status) == "OK"  # its consumer has failed
    for _ in range(2):
        assert code((await call.recall("waiting", entry.recall_handle)).status) == "OK"
    assert await call.receive("waiting", push=True, wait_ms=4_000) == ("MESSAGE_NOT_FOUND", [])


async def test_python_s_client_is_told_of_a_vain_recall_in_a_code_that_it_does_not_take_for_a_success(
    call: Calls,
) -> None:
    (entry,) = await sent(call, message("vain", due_ms=now_ms() + 300))
    await received(call, "vain")
    python = Calls(call.address, (HEADERS[0], ("x-mq-language", "PYTHON")))
    assert code((await python.recall("vain", entry.recall_handle)).status) == "NOT_FOUND"
    assert code((await call.recall("vain", entry.recall_handle)).status) == "MESSAGE_NOT_FOUND"
    await python.channel.close(None)


async def test_a_message_id_sent_twice_is_stored_once(call: Calls, other: Calls) -> None:
    """A client sends a message again with another time of birth: the rest is the same."""
    first = message("twice", b"once", message_id="01AAAA", born_timestamp={"seconds": 1})
    again = message("twice", b"once", message_id="01AAAA", born_timestamp={"seconds": 9})
    assert (await sent(call, first))[0].message_id == (await sent(other, again))[0].message_id == "01AAAA"
    delayed = message("twice", b"later", message_id="01BBBB", due_ms=now_ms() + HOUR_MS)
    handles = {(await sent(each, delayed))[0].recall_handle for each in (call, other)}
    assert len(handles) == 1
    conflict = await call.send(message("twice", b"other", message_id="01AAAA"))
    assert code(conflict.status) == "ILLEGAL_MESSAGE_ID"
    assert [got.body for got in await received(call, "twice")] == [b"once"]
    assert await call.receive("twice", wait_ms=0) == ("MESSAGE_NOT_FOUND", [])


async def test_several_messages_of_one_request_are_taken_together_delayed_ones_too(call: Calls) -> None:
    due_ms = now_ms() + HOUR_MS
    entries = await sent(call, message("batch", b"0"), message("batch", b"1", due_ms=due_ms))
    assert [bool(entry.recall_handle) for entry in entries] == [False, True]
    assert len(await sent(call, message("batch", b"2"), message("batch", b"3"))) == 3 - 1
    bodies: set[bytes] = set()
    while len(bodies) < 3:
        bodies |= {got.body for got in await received(call, "batch")}
    assert bodies == {b"0", b"2", b"3"}


async def test_an_empty_poll_waits_and_without_settings_from_before_as_python_asks(call: Calls) -> None:
    began_s = time.monotonic()
    assert await call.receive("empty", wait_ms=700) == ("MESSAGE_NOT_FOUND", [])
    assert time.monotonic() - began_s > 0.6
    waiting = asyncio.ensure_future(call.receive("empty", wait_ms=8_000))
    await sent(call, message("empty"))
    status, messages = await waiting
    assert (status, len(messages)) == ("OK", 1)


async def test_a_poll_of_go_without_a_time_waits_within_its_deadline(call: Calls) -> None:
    call.timeout_s = 3
    began_s = time.monotonic()
    assert await call.receive("of-go", wait_ms=None) == ("MESSAGE_NOT_FOUND", [])
    assert 1 < time.monotonic() - began_s < 3
    call.timeout_s = None  # neither has a deadline
    waiting = asyncio.ensure_future(call.receive("of-go", wait_ms=None))
    await sent(call, message("of-go"))
    assert (await waiting)[0] == "OK"


async def test_tags_and_sql_choose_what_comes(call: Calls) -> None:
    for number, tag in enumerate(["a", "b", "c"]):
        await sent(call, message("chosen", tag.encode(), tag=tag, properties={"amount": str(number)}))
    for got in (by_tags := await received(call, "chosen", group="tags", tags="a || c")):
        await call.ack("chosen", got, group="tags")
    while len(by_tags) < 2:
        by_tags += await received(call, "chosen", group="tags", tags="a || c")
    assert {got.body for got in by_tags} == {b"a", b"c"}
    (by_sql,) = await received(call, "chosen", group="sql", sql="amount > 1 AND amount < 9")
    assert by_sql.body == b"c"
    assert (await call.receive("chosen", group="bad", sql="amount >"))[0] == "ILLEGAL_FILTER_EXPRESSION"
    assert (await call.receive("chosen", group="tags", tags="b"))[0] == "ILLEGAL_FILTER_EXPRESSION"


async def test_a_handle_is_good_at_any_gateway_until_its_message_is_settled(
    call: Calls, other: Calls
) -> None:
    await sent(call, message("handles", b"0"), message("handles", b"1"))
    messages: list[definition.Message] = []
    while len(messages) < 2:
        messages += await received(call, "handles")
    first, second = messages
    assert await other.ack("handles", first) == ["OK"]
    assert await call.ack("handles", first, second) == ["INVALID_RECEIPT_HANDLE", "OK"]
    assert await call.ack("others", second) == ["INVALID_RECEIPT_HANDLE"]
    assert await call.ack("handles", second, group="h") == ["INVALID_RECEIPT_HANDLE"]


async def test_what_is_invisible_no_more_is_neither_acknowledged_nor_kept(call: Calls) -> None:
    await sent(call, message("expires"))
    (got,) = await received(call, "expires", invisible_ms=300)
    await asyncio.sleep(1)
    assert await call.ack("expires", got) == ["INVALID_RECEIPT_HANDLE"]
    assert code((await call.change("expires", got, 3_000)).status) == "INVALID_RECEIPT_HANDLE"
    (again,) = await received(call, "expires", wait_ms=8_000)
    assert again.system_properties.message_id == got.system_properties.message_id
    assert await call.ack("expires", again) == ["OK"]


async def test_a_simple_consumer_keeps_a_message_for_longer_and_what_it_leaves_comes_again(
    call: Calls, other: Calls
) -> None:
    await sent(call, message("kept", b"kept"))
    (got,) = await received(call, "kept", invisible_ms=1_000)
    changed = await other.change("kept", got, 3_000)
    assert code(changed.status) == "OK"
    assert changed.receipt_handle
    assert await call.receive("kept", wait_ms=1_500) == ("MESSAGE_NOT_FOUND", [])
    (again,) = await received(call, "kept", wait_ms=8_000)
    assert (again.body, again.system_properties.delivery_attempt) == (b"kept", 2)
    assert code((await call.change("kept", got, 3_000)).status) == "INVALID_RECEIPT_HANDLE"
    assert code((await call.change("kept", again, 13 * HOUR_MS)).status) == "ILLEGAL_INVISIBLE_TIME"
    assert code((await call.change("kept", again, 0)).status) == "OK"  # given back at once
    (third,) = await received(call, "kept")
    assert third.system_properties.delivery_attempt == 3
    assert await call.ack("kept", third) == ["OK"]


async def test_a_push_consumer_names_the_time_of_the_next_attempt_and_node_names_none(call: Calls) -> None:
    await sent(call, message("failed", b"failed"))
    (got,) = await received(call, "failed", push=True)
    began_ms = now_ms()
    assert code((await call.change("failed", got, 1_500)).status) == "OK"
    (again,) = await received(call, "failed", push=True)
    assert now_ms() - began_ms >= 1_400
    assert again.system_properties.delivery_attempt == 2
    assert again.system_properties.message_id == got.system_properties.message_id
    began_ms = now_ms()
    assert (
        code((await call.change("failed", again, None)).status) == "OK"
    )  # the group's: 5 s behind the second
    call.timeout_s = 20
    (third,) = await received(call, "failed", push=True, wait_ms=15_000)
    assert now_ms() - began_ms >= 4_500
    assert third.system_properties.delivery_attempt == 3


async def test_what_a_push_consumer_has_stays_its_own_while_it_is_there(call: Calls) -> None:
    """It is leased for 2 s at a time here; its client says nothing of that."""
    await sent(call, message("renewed", b"renewed"))
    (got,) = await received(call, "renewed", push=True)
    assert await call.receive("renewed", push=True, wait_ms=6_000) == ("MESSAGE_NOT_FOUND", [])
    assert await call.ack("renewed", got) == ["OK"]


async def test_what_a_push_consumer_has_that_ends_comes_to_others(call: Calls) -> None:
    gone = Calls(call.address, (("x-mq-client-id", "gone"), *HEADERS[1:]))
    await sent(call, message("ended", b"ended"))
    (got,) = await received(gone, "ended", push=True)
    await gone("NotifyClientTermination", group=definition.Resource(name="g"))
    await gone.channel.close(None)
    (again,) = await received(call, "ended", push=True, wait_ms=8_000)
    assert again.system_properties.message_id == got.system_properties.message_id


async def test_what_a_push_consumer_in_order_gives_up_is_a_dead_letter_that_it_can_read(call: Calls) -> None:
    first = message("given-up", b"given up", message_group="a", properties={"p": "1"})
    await sent(call, first, message("given-up", b"next", message_group="a"))
    (got,) = await received(call, "given-up", group="in-order", push=True)

    async def forwarded() -> str:
        answer = await call(
            "ForwardMessageToDeadLetterQueue",
            group=definition.Resource(name="in-order"),
            topic=definition.Resource(name="given-up"),
            receipt_handle=got.system_properties.receipt_handle,
            message_id=got.system_properties.message_id,
            delivery_attempt=16,
            max_delivery_attempts=16,
        )
        return code(answer.status)

    assert await forwarded() == "OK"
    assert await forwarded() == "OK"  # in hand no more: Java's client repeats whatever else is answered
    (following,) = await received(call, "given-up", group="in-order", push=True)
    assert following.body == b"next"
    (letter,) = await received(call, "dlq%in-order%given-up", group="undertaker")
    assert (letter.body, letter.user_properties["p"]) == (b"given up", "1")
    assert letter.user_properties["tarry.attempts"] == "1"
    assert letter.system_properties.message_id == first.system_properties.message_id
    assert "rocketmq" not in letter.user_properties
    assert await call.ack("dlq%in-order%given-up", letter, group="undertaker") == ["OK"]


async def test_after_its_last_attempt_a_message_is_a_dead_letter_by_the_group_s_policy(
    call: Calls, shared_cluster: LocalCluster
) -> None:
    await sent(call, message("worn-out"))
    (got,) = await received(call, "worn-out", push=True)
    async with connect(shared_cluster.addresses) as client:
        back_off = Exponential(first_ms=100, max_ms=500, factor=2)
        await client.operator().set_group("worn-out", "g", attempts_max=2, back_off=back_off)
    assert await told_policy(call, "worn-out", "g") == (2, [100, 200, 400, 500])
    await call.change("worn-out", got, 100)
    (got,) = await received(call, "worn-out", push=True)
    await call.change("worn-out", got, 100)
    (letter,) = await received(call, "dlq%g%worn-out")
    assert letter.system_properties.message_id == got.system_properties.message_id


@pytest.mark.parametrize(
    ("most", "over", "expected"),
    [
        ({"keys": list(map(str, range(16)))}, {"keys": list(map(str, range(17)))}, "ILLEGAL_MESSAGE_KEY"),
        (
            {"properties": {f"p-{number}": "" for number in range(63)}},
            {"properties": {f"p-{number}": "" for number in range(64)}},
            "MESSAGE_PROPERTIES_TOO_LARGE",
        ),
    ],
)
async def test_the_nodes_limits_of_keys_and_properties_count(
    call: Calls, most: dict[str, Any], over: dict[str, Any], expected: str
) -> None:
    await sent(call, message("many-keys", **most))
    answer = await call.send(message("many-keys", **over))
    assert code(answer.status) == expected


async def told_policy(call: Calls, topic: str, group: str) -> tuple[int, list[int]]:
    """Return the attempts and the waits that a push consumer is told."""
    stream = call.telemetry()
    given = definition.Settings(client_type=definition.PUSH_CONSUMER)
    given.subscription.group.name = group
    given.subscription.subscriptions.add().topic.name = topic
    await stream.write(service.TelemetryCommand(settings=given))
    policy = (await stream.read()).settings.backoff_policy
    stream.cancel()
    return policy.max_attempts, [milliseconds(each) for each in policy.customized_backoff.next]


async def test_a_push_consumer_whose_group_is_not_there_yet_is_told_the_policy_that_it_will_have(
    call: Calls, shared_cluster: LocalCluster
) -> None:
    async with connect(shared_cluster.addresses) as client:
        operator = client.operator()
        await operator.create_topic("policied", group_policy={"attempts_max": 3, "back_off": 700})
        assert await told_policy(call, "policied", "fresh") == (3, [700])
        await operator.set_cluster(attempts_max=5)
        try:
            assert (await told_policy(call, "not-there-yet", "fresh"))[0] == 5
        finally:
            await operator.set_cluster(unset=["attempts_max"])


async def test_a_client_with_a_namespace_receives_its_dead_letters(
    call: Calls, shared_cluster: LocalCluster
) -> None:
    async with connect(shared_cluster.addresses) as client:
        await client.operator().create_topic("eu.gone", group_policy={"attempts_max": 1})
    in_eu = definition.Resource(name="gone", resource_namespace="eu")
    mine = message("gone")
    mine.topic.CopyFrom(in_eu)
    await sent(call, mine)
    (got,) = await received(call, "eu%gone", push=True)
    await call.change("eu%gone", got, 100)
    letters = definition.MessageQueue(
        topic=definition.Resource(name="dlq%g%eu%gone", resource_namespace="eu")
    )
    (letter,) = await received(call, "", message_queue=letters)
    assert letter.system_properties.message_id == got.system_properties.message_id


async def test_an_order_is_kept_and_a_failed_message_holds_up_its_group_alone(call: Calls) -> None:
    for number in range(3):
        await sent(call, message("ordered", f"a{number}".encode(), message_group="a"))
    await sent(call, message("ordered", b"b0", message_group="b"))
    bodies: list[bytes] = []
    failed = False
    while len(bodies) < 4:
        for got in await received(call, "ordered", push=True, wait_ms=5_000):
            assert got.system_properties.message_type == definition.FIFO
            if got.body == b"a0" and not failed:
                failed = True
                await call.change("ordered", got, 1_000)
                continue
            bodies.append(got.body)
            await call.ack("ordered", got)
    assert bodies[0] == b"b0"
    assert bodies[1:] == [b"a0", b"a1", b"a2"]


async def test_delayed_messages_of_a_group_are_taken_and_come_in_order(call: Calls) -> None:
    due_ms = now_ms() + 800
    for number in range(2):
        await sent(
            call, message("later-ordered", str(number).encode(), message_group="a", due_ms=due_ms + number)
        )
    (first,) = await received(call, "later-ordered")
    await call.ack("later-ordered", first)
    (second,) = await received(call, "later-ordered")
    assert (first.body, second.body) == (b"0", b"1")
    assert second.system_properties.message_type == definition.DELAY
    assert second.system_properties.message_group == "a"


async def test_tarry_s_own_clients_and_rocketmq_s_share_topics(
    call: Calls, shared_cluster: LocalCluster
) -> None:
    async with connect(shared_cluster.addresses) as client:
        producer = client.producer()
        scheduled = await producer.schedule(
            "eu.shared", b"own", delay_ms=0, tags=["t"], properties={"p": "1"}
        )
        status, (got,) = await call.receive(
            "",
            message_queue=definition.MessageQueue(
                topic=definition.Resource(resource_namespace="eu", name="shared")
            ),
        )
        system = got.system_properties
        assert (status, system.message_id, system.tag, got.body) == ("OK", scheduled.id, "t", b"own")
        assert (got.topic.resource_namespace, got.topic.name) == ("eu", "shared")
        await sent(
            call, message("shared", b"theirs", namespace="eu", tag="u", keys=["k"], properties={"q": "2"})
        )
        (view,) = await client.puller("eu.shared", "own", start="earliest").receive(2, wait_ms=5_000) and (
            await client.puller("eu.shared", "other", tags=["u"]).receive(2, wait_ms=5_000)
        )
        assert (view.body, view.tags, view.keys, view.properties["q"]) == (b"theirs", ("u",), ("k",), "2")


async def test_a_namespace_that_only_the_header_has_is_that_of_a_consumer_s_topics(call: Calls) -> None:
    """Node's producers name it with each topic, and its consumers with none."""
    await sent(call, message("told-once", namespace="asia"))
    async with Calls(call.address, (*HEADERS, ("x-mq-namespace", "asia"))) as consumer:
        (got,) = await received(consumer, "told-once")
        assert await consumer.ack("told-once", got) == ["OK"]
        await sent(consumer, message("told-once", b"in no other"))
        (got,) = await received(consumer, "told-once")
        assert got.body == b"in no other"
    async with Calls(call.address, (*HEADERS, ("x-mq-namespace", "not allowed"))) as consumer:
        assert (await consumer.receive("told-once"))[0] == "ILLEGAL_TOPIC"


async def test_a_client_that_leaves_its_poll_takes_no_message_with_it(call: Calls) -> None:
    stream = call.received("left", wait_ms=8_000)
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0.5)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await sent(call, message("left"))
    (got,) = await received(call, "left")
    assert got.system_properties.delivery_attempt == 1


async def test_what_a_client_leaves_before_it_has_all_of_the_answer_is_given_back(
    call: Calls, shared_cluster: LocalCluster
) -> None:
    """It would be invisible for an hour else. The client here takes one message and no more."""
    for number in range(3):
        await sent(call, message("unread", str(number).encode()))
    gateway = Gateway(settings(shared_cluster), CONFIG, Routes((), ("127.0.0.1", 8081)))
    its_call = Call(gateway, gateway.accesses.of("", ""), "client", "JAVA", None)
    request = call.receive_request("unread", invisible_ms=HOUR_MS)
    written: list[service.ReceiveMessageResponse] = []
    stuck = asyncio.Event()

    async def write(answer: service.ReceiveMessageResponse) -> None:
        written.append(answer)
        if answer.HasField("message"):
            stuck.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(receive(its_call, request, write))
    async with asyncio.timeout(20):
        await stuck.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gateway.close()
    bodies: set[bytes] = set()
    while len(bodies) < 3:
        bodies |= {got.body for got in await received(call, "unread", invisible_ms=HOUR_MS)}


async def test_what_a_client_never_reads_is_given_back(call: Calls, shared_cluster: LocalCluster) -> None:
    """It would be invisible for an hour else, and hold its place and memory as long as the client likes."""
    for number in range(5):
        await sent(call, message("stuck", str(number).encode() * 200_000))
    small = [("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0)]
    async with (
        gateway_calls(settings(shared_cluster), Config(limits=Limits(call_ms=500))) as address,
        Calls(address, channel_options=small) as stuck,
    ):
        stream = stuck.received("stuck", invisible_ms=HOUR_MS)
        async with asyncio.timeout(20):
            assert code((await stream.read()).status) == "OK"
        bodies: set[bytes] = set()
        while len(bodies) < 5:
            bodies |= {got.body[:1] for got in await received(call, "stuck", invisible_ms=HOUR_MS)}


async def test_what_is_not_written_is_given_back_though_the_call_is_cancelled_meanwhile(
    call: Calls, shared_cluster: LocalCluster
) -> None:
    """Where a connection is cut, a write may end with an error of gRPC before the call is cancelled."""
    await sent(call, message("unwritten"))
    gateway = Gateway(settings(shared_cluster), CONFIG, Routes((), ("127.0.0.1", 8081)))
    its_call = Call(gateway, gateway.accesses.of("", ""), "client", "JAVA", None)
    request = call.receive_request("unwritten", invisible_ms=HOUR_MS)

    async def write(answer: service.ReceiveMessageResponse) -> None:
        if answer.HasField("message"):
            asyncio.get_running_loop().call_soon(task.cancel)
            raise RuntimeError("the connection is cut")

    task = asyncio.create_task(receive(its_call, request, write))
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await task
    await gateway.close()
    (got,) = await received(call, "unwritten", invisible_ms=HOUR_MS)
    assert got.system_properties.delivery_attempt == 2


async def test_an_attempt_that_is_made_again_has_what_its_lost_answer_had(call: Calls) -> None:
    """Else what a push consumer never had would be kept for it while it is there."""
    await sent(call, message("attempts"))
    (got,) = await received(call, "attempts", push=True, attempt_id="same")
    (again,) = await received(call, "attempts", push=True, attempt_id="same")
    assert again.system_properties.message_id == got.system_properties.message_id
    assert again.system_properties.delivery_attempt == 2
    assert await call.receive("attempts", push=True, attempt_id="another", wait_ms=300) == (
        "MESSAGE_NOT_FOUND",
        [],
    )
    assert await call.ack("attempts", again) == ["OK"]
    assert await call.receive("attempts", push=True, attempt_id="same", wait_ms=300) == (
        "MESSAGE_NOT_FOUND",
        [],
    )
