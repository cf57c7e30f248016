"""RocketMQ's own Python client under load: sends, recalls and receives until told to end by a line on stdin.

Usage: load.py HOST:PORT TOPIC. It prints a line once it has begun, and one JSON object last.
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
)

PATIENCE_S = 90


class Listener(MessageListener):
    """Keeps what it is given: body, time, attempt, and whether it may be a repetition."""

    def __init__(self) -> None:
        self.seen: list[list[object]] = []

    def consume(self, message: Message) -> ConsumeResult:
        mark = message.properties.get("tarry.maybe_duplicate", "")
        now_ms = int(time.time() * 1_000)
        self.seen.append([bytes(message.body).decode(), now_ms, message.delivery_attempt, mark])
        return ConsumeResult.SUCCESS


def main() -> None:
    address, topic = sys.argv[1:]
    configuration = ClientConfiguration(address, Credentials())
    producer = Producer(configuration, (topic,))
    producer.startup()
    listener = Listener()
    push = PushConsumer(configuration, "load", listener, {topic: FilterExpression()})
    push.startup()
    ends = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), ends.set()), daemon=True).start()
    print("begun", flush=True)

    sent: dict[str, int] = {}
    recalled: list[str] = []
    errors: list[str] = []
    number = 0
    while not ends.is_set():
        body, due_s = f"{topic}-{number}", int(time.time()) + 2
        number += 1
        message = Message()
        message.topic, message.body, message.delivery_timestamp = topic, body.encode(), due_s
        try:
            receipt = producer.send(message)
            if number % 10 == 0:
                try:
                    producer.recall_message(topic, receipt.recall_handle)
                    recalled.append(body)
                except Exception as error:  # noqa: BLE001 - a recall may be in vain; then it comes, or not
                    errors.append(f"recall: {error}")
                continue
            sent[body] = due_s * 1_000
        except Exception as error:  # noqa: BLE001 - the client raises several
            errors.append(f"send: {error}")
        time.sleep(0.005)
    until_s = time.monotonic() + PATIENCE_S
    while sent.keys() - {each[0] for each in list(listener.seen)} and time.monotonic() < until_s:
        time.sleep(0.2)
    time.sleep(3)  # for what was recalled, and should not come
    push.shutdown()
    producer.shutdown()
    print(json.dumps({"sent": sent, "recalled": recalled, "errors": errors, "seen": listener.seen}))
    sys.stdout.flush()


main()
