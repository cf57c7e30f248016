"""RocketMQ's own client for Python, measured. The programs for other languages are its twins.

Usage: measure.py HOST:PORT TOPIC TASKS RATE_MS SINGLES PER_S LATE_MS CROWD LEAD_MS

One producer and one push consumer, whose group has the topic's name; bodies of 100 bytes, every message
delayed. It prints a line of JSON for each part, times in ms:

    ["rate", sent, failed, took]       TASKS tasks send one message after another for RATE_MS, due in an hour;
                                       told twice: the first time both sides warm up
    ["single", failed, [each took]]    SINGLES messages, one after another
    ["late", failed, missing, [late]]  PER_S messages a second for LATE_MS, each due LEAD_MS after it is sent
    ["crowd", failed, missing, [late]] CROWD messages due at one instant

`late`: from the due time, as asked for, to when the listener has the message, below 0 if it came early. A
message whose answer came after its due time is counted as failed, and of one that failed no time is told.
Due times are the wall clock's; how long something took is told by a clock that nobody sets. This client's due
times are whole seconds: `late` messages come in a crowd each second.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable

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

BODY_BYTES = 100
HOUR_MS = 3_600_000
COMES_S = 60.0


def now_ms() -> float:
    return time.time_ns() / 1e6


def clock_ms() -> float:
    return time.perf_counter_ns() / 1e6


def tell(*fields: object) -> None:
    print(json.dumps(fields), flush=True)


class Listener(MessageListener):
    """Keeps when each message came first."""

    def __init__(self) -> None:
        self.came: dict[str, float] = {}

    def consume(self, message: Message) -> ConsumeResult:
        token = bytes(message.body).decode().split()[0]
        self.came.setdefault(token, now_ms())
        return ConsumeResult.SUCCESS


class Sender:
    """Sends delayed messages, from several threads."""

    def __init__(self, producer: Producer, topic: str, tasks: int) -> None:
        self.producer, self.topic, self.tasks = producer, topic, tasks
        self.due: dict[str, int] = {}
        """Due times of messages whose answer came before them, by token."""
        self.failed: list[str] = []
        """Tokens: a list, for a count that several threads add to loses some."""

    def send(self, token: str, due_ms: float) -> bool:
        message = Message()
        message.topic, message.body = self.topic, token.ljust(BODY_BYTES).encode()
        message.delivery_timestamp = due_s = -int(-due_ms // 1_000)
        try:
            self.producer.send(message)
        except Exception as error:  # noqa: BLE001 - the client raises several
            print(error, file=sys.stderr)
            return False
        in_time = now_ms() <= due_s * 1_000
        if in_time:
            self.due[token] = due_s * 1_000
        return in_time

    def all_tasks(self, work: Callable[[int], None]) -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(self.tasks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def sent(self, kind: str, number: int, due_ms: float) -> None:
        token = f"{kind}-{number}"
        if not self.send(token, due_ms):
            self.failed.append(token)

    def rate(self, rate_ms: int) -> float:
        """Return messages a second."""
        counts = [[0, 0] for _ in range(self.tasks)]
        start = clock_ms()

        def work(task: int) -> None:
            while clock_ms() < start + rate_ms:
                counts[task][not self.send(f"rate-{task}", now_ms() + HOUR_MS)] += 1

        self.all_tasks(work)
        took = clock_ms() - start
        sent, failed = (sum(column) for column in zip(*counts, strict=True))
        tell("rate", sent, failed, round(took))
        return 1_000 * sent / took

    def singles(self, count: int) -> None:
        took = []
        for number in range(count):
            start = clock_ms()
            if self.send(f"single-{number}", now_ms() + HOUR_MS):
                took.append(round(clock_ms() - start, 3))
        tell("single", count - len(took), took)

    def paced(self, per_s: int, late_ms: int, lead_ms: int) -> None:
        start, count = now_ms(), per_s * late_ms // 1_000

        def work(task: int) -> None:
            for number in range(task, count, self.tasks):
                planned_ms = start + number * 1_000 / per_s
                time.sleep(max(0.0, planned_ms - now_ms()) / 1_000)
                self.sent("late", number, planned_ms + lead_ms)

        self.all_tasks(work)

    def crowd(self, count: int, due_ms: float) -> None:
        def work(task: int) -> None:
            for number in range(task, count, self.tasks):
                self.sent("crowd", number, due_ms)

        self.all_tasks(work)

    def told(self, kind: str, listener: Listener) -> None:
        """Wait until all of a kind have come, and tell how late each was."""
        due = {token: due_ms for token, due_ms in self.due.items() if token.startswith(kind)}
        until_ms = max([*due.values(), now_ms()]) + 1_000 * COMES_S
        while due.keys() - listener.came.keys() and now_ms() < until_ms:
            time.sleep(0.1)
        late = [
            round(listener.came[token] - due_ms, 3) for token, due_ms in due.items() if token in listener.came
        ]
        tell(kind, len(self.failed), len(due) - len(late), late)
        self.failed.clear()


def main() -> None:
    address, topic, *numbers = sys.argv[1:]
    tasks, rate_ms, singles, per_s, late_ms, crowd, lead_ms = map(int, numbers)
    configuration = ClientConfiguration(address, Credentials())
    producer = Producer(configuration, (topic,))
    producer.startup()
    listener = Listener()
    push = PushConsumer(configuration, topic, listener, {topic: FilterExpression()})
    push.startup()
    sender = Sender(producer, topic, tasks)
    sender.rate(rate_ms)
    rate = sender.rate(rate_ms)
    sender.singles(singles)
    sender.paced(per_s, late_ms, lead_ms)
    sender.told("late", listener)
    sender.crowd(crowd, now_ms() + max(lead_ms, 1_500 * crowd / max(rate, 1.0)))
    sender.told("crowd", listener)
    push.shutdown()
    producer.shutdown()


if __name__ == "__main__":
    main()
