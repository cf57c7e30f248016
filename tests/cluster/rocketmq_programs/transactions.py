"""RocketMQ's own Python client, in a process of its own: transactions, ended by it or by its checker.

Usage: transactions.py HOST:PORT TOPIC, where a message ``orphan`` is prepared by somebody who is gone.
It prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

WANTED = 4
checked: dict[str, int] = {}


class Checker(TransactionChecker):
    def check(self, message: Message) -> TransactionResolution:
        body = bytes(message.body).decode()
        checked[body] = checked.get(body, 0) + 1
        if body == "unsure" and checked[body] == 1:
            return TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
        return TransactionResolution.ROLLBACK if body == "undone" else TransactionResolution.COMMIT


def main() -> None:
    address, topic = sys.argv[1:]
    configuration = ClientConfiguration(address, Credentials())
    producer = Producer(configuration, (topic,), checker=Checker())
    producer.startup()
    ids: dict[str, str] = {}
    for body in ("committed", "rolled back", "left", "undone", "unsure"):
        message = Message()
        message.topic, message.body, message.tag = topic, body.encode(), "tag"
        transaction = producer.begin_transaction()
        ids[body] = producer.send(message, transaction).message_id
        if body == "committed":
            transaction.commit()
        elif body == "rolled back":
            transaction.rollback()
    consumer = SimpleConsumer(configuration, "g", {topic: FilterExpression()}, await_duration=5)
    consumer.startup()
    seen: list[str] = []
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        got = consumer.receive(16, 20) or []
        if not got and len(seen) >= WANTED:
            break
        for message in got:
            body = bytes(message.body).decode()
            seen.append(body)
            assert message.message_id == ids.get(body, message.message_id)
            consumer.ack(message)
    consumer.shutdown()
    producer.shutdown()
    print(json.dumps({"seen": sorted(seen), "checked": checked}))
    sys.stdout.flush()


main()
