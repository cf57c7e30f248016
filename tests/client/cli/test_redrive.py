"""A redrive that is broken off: what it has done is not done again, and nothing is lost."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tarry.client.cli.redrive import REDRIVEN_FROM, Fate, Redriven, redrive
from tarry.client.errors import Damaged, NoRoom, NotFound, OutcomeUnknown, Refused, TarryError
from tarry.client.results import CancelOutcome, MessageState
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason


@dataclass
class Stored:
    topic: str = "orders"
    body: bytes = b"\x00body"
    state: MessageState = MessageState.RELEASED
    due_ms: int = 1
    tags: tuple[str, ...] = ("red",)
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=lambda: {"a": "b", "tarry.x": "y"})
    ordering_key: str = ""


class Cluster:
    """What a producer sees of a cluster that may fail at a message's copy, before or behind its commit."""

    def __init__(self, count: int) -> None:
        self.stored = {name(number): Stored() for number in range(count)}
        self.copies: dict[str, dict[str, Any]] = {}
        self.fails: dict[str, TarryError] = {}
        self.unreadable: dict[str, TarryError] = {}
        self.scheduled = 0
        self.has_no_keys = False

    def producer(self) -> Cluster:
        return self

    async def get(self, message_id: str) -> Stored:
        if (error := self.unreadable.get(message_id)) is not None:
            raise error
        return self.stored[message_id]

    async def cancel(self, message_id: str) -> CancelOutcome:
        self.stored[message_id].state = MessageState.CANCELLED
        return CancelOutcome.CANCELLED

    async def schedule(self, topic: str, body: bytes, *, idempotency_key: str = "", **more: Any) -> Any:
        of = more["properties"][REDRIVEN_FROM]
        if idempotency_key and self.has_no_keys:
            raise Refused(Reason.LEVEL_TOO_LOW, "finish the upgrade")
        error = self.fails.get(of)
        if isinstance(error, NoRoom):
            raise error
        if (idempotency_key or of) not in self.copies:
            self.scheduled += 1
            self.copies[idempotency_key or of] = {"topic": topic, "body": body, **more}
        if error is not None:
            raise error
        return type("Made", (), {"id": f"copy of {of}"})()


def name(number: int) -> str:
    return str(MessageId(0, 1, number))


def reconciled(out: Path, count: int) -> Path:
    (out / "missing").mkdir(parents=True)
    (out / "missing" / "_SUCCESS").touch()
    rows = [
        {
            "topic": "orders",
            "groups": ["g"],
            "check": "missing",
            "shard": 0,
            "hour": 1,
            "global_index": number,
        }
        for number in range(count)
    ]
    (out / "missing" / "part-0.json").write_text("\n".join(map(json.dumps, rows)))
    return out


async def run(cluster: Any, out: Path) -> list[Redriven]:
    return [one async for one in redrive(cluster, out, dry_run=False)]


async def test_what_was_scheduled_beside_a_failure_is_not_scheduled_again(tmp_path: Path) -> None:
    cluster, out = Cluster(5), reconciled(tmp_path, 5)
    cluster.fails = {name(2): OutcomeUnknown("UNAVAILABLE", "the leader is gone")}
    with pytest.raises(OutcomeUnknown):
        await run(cluster, out)
    assert cluster.scheduled == 5
    cluster.fails = {}
    fates = [one.fate for one in await run(cluster, out)]
    assert fates == [Fate.DONE_BEFORE, Fate.DONE_BEFORE, Fate.REDRIVEN, Fate.DONE_BEFORE, Fate.DONE_BEFORE]
    assert cluster.scheduled == 5  # its copy was committed, and has its key
    assert len((out / "redriven.jsonl").read_text().splitlines()) == 5


async def test_a_cluster_whose_upgrade_is_not_finished_gets_copies_without_keys(tmp_path: Path) -> None:
    cluster, out = Cluster(2), reconciled(tmp_path, 2)
    cluster.has_no_keys = True
    for fate in (Fate.REDRIVEN, Fate.DONE_BEFORE):
        assert [one.fate for one in await run(cluster, out)] == [fate] * 2
    assert cluster.scheduled == 2


async def test_what_the_cluster_refuses_is_told_and_keeps_no_other_from_its_copy(tmp_path: Path) -> None:
    cluster, out = Cluster(3), reconciled(tmp_path, 3)
    cluster.fails = {name(0): NoRoom("SECOND_FULL", "the second is full")}
    told = await run(cluster, out)
    assert [one.fate for one in told] == [Fate.REFUSED, Fate.REDRIVEN, Fate.REDRIVEN]
    assert "the second is full" in told[0].why
    cluster.fails = {}
    first, *_ = await run(cluster, out)
    assert first.fate is Fate.REDRIVEN
    assert cluster.scheduled == 3


async def test_a_message_that_was_cancelled_for_its_copy_gets_it_by_the_next_run(tmp_path: Path) -> None:
    cluster, out = Cluster(2), reconciled(tmp_path, 2)
    cluster.stored[name(0)].state = MessageState.PENDING
    cluster.stored[name(1)].state = MessageState.CANCELLED  # by somebody else
    cluster.fails = {name(0): NoRoom("SECOND_FULL", "the second is full")}
    assert [one.fate for one in await run(cluster, out)] == [Fate.REFUSED, Fate.NOT_MISSING]
    assert cluster.stored[name(0)].state is MessageState.CANCELLED
    cluster.stored[name(0)] = Stored("", b"", MessageState.CANCELLED)  # nothing of it is kept there
    with (out / "redriven.jsonl").open("a") as file:
        file.write('{"id": "cut')  # by a crash
    cluster.fails = {}
    assert [one.fate for one in await run(cluster, out)] == [Fate.REDRIVEN, Fate.NOT_MISSING]
    (copy,) = cluster.copies.values()
    assert (copy["topic"], copy["body"], copy["tags"]) == ("orders", b"\x00body", ("red",))
    assert copy["properties"] == {"a": "b", REDRIVEN_FROM: name(0)}
    assert [one.fate for one in await run(cluster, out)] == [Fate.DONE_BEFORE, Fate.NOT_MISSING]


@pytest.mark.parametrize(
    ("error", "without"),
    [
        (NotFound("MESSAGE_NOT_FOUND", "there is no such message"), Fate.NOT_STORED),
        (Damaged("MESSAGE_DAMAGED", "its bytes fail their checksum"), Fate.REFUSED),
    ],
)
async def test_what_was_written_down_serves_where_nothing_of_the_message_can_be_read_any_more(
    tmp_path: Path, error: TarryError, without: Fate
) -> None:
    cluster, out = Cluster(2), reconciled(tmp_path, 2)
    cluster.stored[name(0)].state = MessageState.PENDING
    cluster.fails = {name(0): NoRoom("SECOND_FULL", "the second is full")}
    cluster.unreadable = {name(1): error}
    assert [one.fate for one in await run(cluster, out)] == [Fate.REFUSED, without]
    cluster.unreadable, cluster.fails = {name(number): error for number in range(2)}, {}
    assert [one.fate for one in await run(cluster, out)] == [Fate.REDRIVEN, without]
    (copy,) = cluster.copies.values()
    assert (copy["topic"], copy["body"]) == ("orders", b"\x00body")
    assert [one.fate for one in await run(cluster, out)] == [Fate.DONE_BEFORE, without]
