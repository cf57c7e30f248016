"""RocketMQ's own Python client in a group in order: what it fails at it repeats itself, and then gives up.

Usage: order.py HOST:PORT TOPIC GROUP. It prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import threading

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)


class Listener(MessageListener):
    """Takes all but ``poison``."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.done = threading.Event()

    def consume(self, message: Message) -> ConsumeResult:
        body = bytes(message.body).decode()
        self.seen.append(body)
        if body == "last":
            self.done.set()
        return ConsumeResult.FAILURE if body == "poison" else ConsumeResult.SUCCESS


def main() -> None:
    address, topic, group = sys.argv[1:]
    configuration = ClientConfiguration(address, Credentials())
    producer = Producer(configuration, (topic,))
    producer.startup()
    for body in ("first", "poison", "third", "last"):
        message = Message()
        message.topic, message.body, message.message_group = topic, body.encode(), "one"
        producer.send(message)
    listener = Listener()
    push = PushConsumer(configuration, group, listener, {topic: FilterExpression()})
    push.startup()
    came = listener.done.wait(60)
    push.shutdown()
    producer.shutdown()
    print(json.dumps({"came": came, "seen": listener.seen}))
    sys.stdout.flush()


main()
