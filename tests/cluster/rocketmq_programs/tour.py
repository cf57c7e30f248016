"""RocketMQ's own Python client, in a process of its own: a tour of what a producer and consumers do.

Usage: tour.py HOST:PORT TOPIC [ACCESS_KEY SECRET_KEY NAMESPACE], with keys over TLS.
The push consumer's filter is of tags, the simple one's of properties; `filtered` is left out by both.
It prints one JSON object. Times are in ms.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from rocketmq.grpc_protocol import FilterType

DAY_S = 86_400


def message(topic: str, body: str, tag: str = "tag", colour: str = "red", **fields: object) -> Message:
    made = Message()
    made.topic, made.body = topic, body.encode()
    made.tag, made.keys = tag, f"key-{body}"
    made.add_property("colour", colour)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class Listener(MessageListener):
    """Fails at the first delivery of ``fail``, and keeps what it is given."""

    def __init__(self, wanted: int) -> None:
        self.seen: list[list[object]] = []
        self.wanted, self.done = wanted, threading.Event()

    def consume(self, message: Message) -> ConsumeResult:
        body = bytes(message.body).decode()
        self.seen.append([body, message.delivery_attempt, int(time.time() * 1_000), message.corrupted])
        if body == "fail" and message.delivery_attempt == 1:
            return ConsumeResult.FAILURE
        self.wanted -= 1
        if self.wanted == 0:
            self.done.set()
        return ConsumeResult.SUCCESS


def recalled(producer: Producer, topic: str, handle: str) -> str:
    try:
        return "OK " + producer.recall_message(topic, handle)
    except Exception as error:  # noqa: BLE001 - the client raises several
        return f"{type(error).__name__} {error}"


def main() -> None:
    address, topic, *keys = sys.argv[1:]
    configuration = ClientConfiguration(address, Credentials(*keys[:2]), *keys[2:])
    told: dict[str, object] = {}
    tls = bool(keys)
    producer = Producer(configuration, (topic,), tls_enable=tls)
    producer.startup()
    listener = Listener(wanted=6)
    by_tags = {topic: FilterExpression("tag || other")}
    by_properties = {topic: FilterExpression("colour = 'red' AND size IS NULL", FilterType.SQL)}
    push = PushConsumer(configuration, "push", listener, by_tags, tls_enable=tls)
    push.startup()

    first = message(topic, "now")
    told["now_id"] = [producer.send(first).message_id == first.message_id]
    due_s = int(time.time()) + 3
    delayed = producer.send(message(topic, "delayed", delivery_timestamp=due_s))
    far = producer.send(message(topic, "far", delivery_timestamp=int(time.time()) + 3 * DAY_S))
    told["recalls"] = [recalled(producer, topic, far.recall_handle).split()[0] for _ in range(2)]
    producer.send(message(topic, "filtered", "none", "blue"))
    producer.send(message(topic, "fail"))
    for number in range(3):
        producer.send(message(topic, f"fifo{number}", message_group="group"))
    told["all_came"] = listener.done.wait(60)
    told["seen"], told["due_ms"] = listener.seen, due_s * 1_000
    told["recall_of_delivered"] = recalled(producer, topic, delayed.recall_handle)
    push.shutdown()

    simple = SimpleConsumer(configuration, "simple", by_properties, await_duration=5, tls_enable=tls)
    simple.startup()
    bodies: dict[str, str] = {}
    until_s = time.monotonic() + 60
    while len(bodies) < 6 and time.monotonic() < until_s:
        for got in simple.receive(16, 20) or []:
            if not bodies:
                simple.change_invisible_duration(got, 30)
            bodies[bytes(got.body).decode()] = f"{got.tag} {got.properties} {list(got.keys)}"
            simple.ack(got)
    told["simple"] = bodies
    told["rest"] = [bytes(got.body).decode() for got in simple.receive(16, 20) or []]
    simple.shutdown()
    producer.shutdown()
    print(json.dumps(told))
    sys.stdout.flush()


main()
