"""Context that the deliveries of all groups share: parts of the node, and callbacks of the leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from google.protobuf.message import Message

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import NodeConfig
from tarry.node.delivery.marks import Marks
from tarry.node.delivery.offset_pieces import Pieces
from tarry.node.delivery.policy import Policy, policy_of
from tarry.node.delivery.turn_share import TurnShare
from tarry.node.ledger.ledger import Ledger
from tarry.node.metrics.traffic import Traffic
from tarry.node.repair.records import Damage
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.machine import Machine

Propose: TypeAlias = Callable[[Message], Awaitable[Any]]

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(frozen=True, slots=True)
class Context:
    """Parts and callbacks that delivery needs."""

    config: NodeConfig
    machine: Machine
    time: ClusterTime
    propose: Propose
    may_serve: Callable[[], bool]
    confirmed_s: Callable[[], float]  # send time of the latest heartbeat that a majority has answered
    beat: Callable[[], None]  # sends a heartbeat at once
    stir: Callable[[], None]  # the next one has something to tell
    spawn: Spawn  # runs a task that ends with the leadership
    fail: Callable[[BaseException], None]  # ends the node
    damage: Damage
    ledger: Ledger
    traffic: Traffic
    incarnation: int = 0  # of the cluster
    holds: Holds = field(default_factory=Holds)
    pieces: Pieces = field(default_factory=Pieces)
    marks: Marks = field(default_factory=Marks)
    turn: TurnShare = field(default_factory=TurnShare)
    over: asyncio.Event = field(default_factory=asyncio.Event)  # set: nothing more is read or delivered

    def policy(self, topic: str, group: str) -> Policy:
        """Return how messages are delivered to a group, now."""
        return policy_of(self.machine.queues, self.config, topic, group)
