"""Ordering keys in a group that is moved, where another replica applies the seek before the leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tarry.node.delivery.batch import DeliveryBatch
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.event_details import moved
from tarry.replication.state_machine.events import Event
from tests.node.group_in_process import GROUP, TOPIC, Group
from tests.node.group_play import labels, pass_ms, play
from tests.simulation.checker import Violation
from tests.simulation.ledger import Ledger
from tests.simulation.rows import Rows

SEEK = log_pb.SeekCommand(topic=TOPIC, group=GROUP, offset=0)


class Watched:
    """A group at its leader, whose rows and deliveries are checked as the simulation checks them."""

    def __init__(self, group: Group) -> None:
        self.rows = Rows(Ledger(0, {}))
        self.batches: list[DeliveryBatch] = []
        self._machine = group.machine
        self._apply = group.machine.apply
        group.machine.events.wanted = True
        setattr(group.machine, "apply", self._applied)  # noqa: B010 - a method of one object
        setattr(group._ledger, "delivered", self._delivered)  # noqa: B010

    def _applied(self, index: int, term: int, commands: Sequence[bytes]) -> Any:
        outcomes = self._apply(index, term, commands)
        self._tell(index, self._machine.take_events())
        return outcomes

    def _tell(self, index: int, events: Sequence[Event]) -> None:
        self.rows.applied("n1", index, events, self._machine.queues)

    def _delivered(self, batch: DeliveryBatch, topic: str, group: str, *_: object) -> None:
        self.batches.append(batch)
        self.deliver(batch)

    def deliver(self, batch: DeliveryBatch) -> None:
        """Raises Violation."""
        self.rows.delivered(self._machine, batch, TOPIC, GROUP)

    def sought_elsewhere(self, entries_ahead: int) -> None:
        """Another replica, so many entries ahead, has applied the seek as the last of these."""
        event = moved(SEEK, self._machine.queues, TOPIC, GROUP)._replace(offset=np.array([0]))
        self._tell(self._machine.applied_index + entries_ahead, [event])


async def until_the_first_is_acked(group: Group) -> None:
    """Of two messages of a key; the ack is proposed and not committed."""
    for _ in range(2):
        group.schedule("k", 0)
    group.join("a")
    await pass_ms(group, 1)
    group.settle_first("a", 1, nack=False)
    await group.settle()


def test_what_was_delivered_before_the_leader_applied_a_seek_is_not_waited_for_after_it() -> None:
    """Though another replica had applied the seek by then."""

    async def steps(group: Group) -> None:
        watched = Watched(group)
        await until_the_first_is_acked(group)
        watched.sought_elsewhere(entries_ahead=2)
        await group.commit()
        assert labels(group) == ["m0", "m1"]
        group.apply(SEEK)
        group.show_applied()
        await group.settle()
        assert not group.failed
        assert labels(group) == ["m0", "m1", "m0"]

    play(steps)


def test_before_the_leader_has_applied_a_seek_nothing_of_a_key_may_overtake() -> None:
    """Though another replica has applied the seek: as until then."""

    async def steps(group: Group) -> None:
        watched = Watched(group)
        await until_the_first_is_acked(group)
        await group.commit()
        assert labels(group) == ["m0", "m1"]
        watched.sought_elsewhere(entries_ahead=1)
        with pytest.raises(Violation, match="O1"):
            watched.deliver(watched.batches[0])

    play(steps)
