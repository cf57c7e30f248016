"""RocketMQ's own client for Python under load, as the programs of the other languages are for theirs.

    python load.py HOST:PORT TOPIC FIRST_TOKEN

What is sent, told and read: `tarry.chaos.traffic.rocketmq`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque

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

PAUSE_S = 0.04
RECALLED_BEFORE_MS = 50
LOCK = threading.Lock()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def tell(*fields: object) -> None:
    with LOCK:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def got(group: str, message: Message) -> int:
    token = int(bytes(message.body))
    marked = "tarry.maybe_duplicate" in message.properties
    tell("got", group, token, message.message_id, message.delivery_attempt, marked, now_ms())
    return token


class Listener(MessageListener):
    """Fails at the first delivery of every tenth message."""

    def consume(self, message: Message) -> ConsumeResult:
        fails = got("push", message) % 10 == 4 and message.delivery_attempt == 1
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def receive(consumer: SimpleConsumer, ends: threading.Event) -> None:
    while not ends.is_set():
        try:
            messages = consumer.receive(32, 10) or []
        except Exception as error:  # noqa: BLE001 - the client raises several
            tell("failed", "receive", str(error))
            time.sleep(0.1)
            continue
        tokens = [got("simple", message) for message in messages]  # before an ack waits for a leader
        for token, message in zip(tokens, messages, strict=True):
            try:
                consumer.ack(message)
                tell("done", "simple", token, message.delivery_attempt, now_ms())
            except Exception as error:  # noqa: BLE001
                tell("failed", "ack", str(error))


class Load:
    """Messages, and recalls of some of them."""

    def __init__(self, producer: Producer, topic: str, first: int) -> None:
        self.producer, self.topic, self.token = producer, topic, first
        self.later: deque[tuple[int, int, str]] = deque()

    def send(self) -> None:
        token, kind = self.token, self.token % 10
        self.token += 1
        message = Message()
        message.topic, message.body = self.topic, str(token).encode()
        sent_ms = due_ms = now_ms()
        key = ""
        if kind in (3, 8):
            key = message.message_group = f"python-{token % 4}"
        elif kind not in (1, 6):
            message.delivery_timestamp = sent_ms // 1_000 + 2  # s
            due_ms = message.delivery_timestamp * 1_000
        try:
            receipt = self.producer.send(message)
        except Exception as error:  # noqa: BLE001
            tell("sent", token, key, due_ms, sent_ms, now_ms(), "", str(error) or "error")
            return
        tell("sent", token, key, due_ms, sent_ms, now_ms(), receipt.message_id, "")
        if kind == 0:
            self.recall(token, receipt.recall_handle)
        elif kind in (2, 5):
            self.later.append((due_ms, token, receipt.recall_handle))

    def recall_due(self) -> None:
        while self.later and self.later[0][0] - RECALLED_BEFORE_MS <= now_ms():
            _, token, handle = self.later.popleft()
            self.recall(token, handle)

    def recall(self, token: int, handle: str) -> None:
        try:
            self.producer.recall_message(self.topic, handle)
            tell("recalled", token, now_ms(), "")
        except Exception as error:  # noqa: BLE001
            tell("recalled", token, now_ms(), str(error) or "error")


def main() -> None:
    address, topic, first = sys.argv[1:]
    configuration = ClientConfiguration(address, Credentials())
    producer = Producer(configuration, (topic,))
    producer.startup()
    subscription = {topic: FilterExpression()}
    push = PushConsumer(configuration, "push", Listener(), subscription)
    push.startup()
    simple = SimpleConsumer(configuration, "simple", subscription, await_duration=5)
    simple.startup()
    stops, ends = threading.Event(), threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stops.set()
        sys.stdin.readline()
        ends.set()

    threading.Thread(target=listen, daemon=True).start()
    receiving = threading.Thread(target=receive, args=(simple, ends))
    receiving.start()
    tell("begun")
    load = Load(producer, topic, int(first))
    while not stops.is_set() or load.later:
        if not stops.is_set():
            load.send()
        load.recall_due()
        time.sleep(PAUSE_S)
    tell("stopped")
    ends.wait()
    receiving.join()
    push.shutdown()
    simple.shutdown()
    producer.shutdown()
    tell("ended")


if __name__ == "__main__":
    main()
