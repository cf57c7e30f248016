"""Cancels of pending messages by their ids, in commands of a bounded cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.node.clock.cluster_time import ClusterTime
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.replication.driver.driver import Driver
from tarry.replication.state_machine.command_costs import cost_us
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Cancelled
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.columns import portions
from tarry.wheel.state import MessageState

CANCEL_NS_MAX: Final = 6_000_000
"""Estimated cost of one command's ids; a request whose ids take more becomes several."""
ID_NS: Final = 3_000
"""Of an id, whatever its hour: its message may be the only one of its topic."""

OUTCOME_OF_STATE: Final = np.zeros(8, dtype=np.uint32)
"""Of a cancel, by the wheel's state of the message; of a pending one, what the cancel is to come to."""
OUTCOME_OF_STATE[MessageState.PENDING] = pb.CANCEL_OUTCOME_CANCELLED
OUTCOME_OF_STATE[MessageState.RELEASED] = pb.CANCEL_OUTCOME_ALREADY_RELEASED
OUTCOME_OF_STATE[MessageState.CANCELLED] = pb.CANCEL_OUTCOME_ALREADY_CANCELLED
OUTCOME_OF_STATE[MessageState.NOT_FOUND] = pb.CANCEL_OUTCOME_NOT_FOUND

Numbers: TypeAlias = NDArray[np.uint32]
Chosen: TypeAlias = Callable[[Numbers, Numbers], NDArray[np.bool_]]


class PendingCancels:
    """Cancels what is pending, at the leader."""

    def __init__(self, machine: Machine, driver: Driver, time: ClusterTime) -> None:
        self._machine, self._driver, self._time = machine, driver, time

    def costs_ns(self, hour: Numbers, index: Numbers) -> NDArray[Any]:
        """Estimate what each message takes to be looked up and cancelled, places of shape (n,) by hour."""
        return ID_NS + self._machine.wheel.costs_ns(hour, index)

    def cost_ns_of_ids(self, hour: Numbers, index: Numbers) -> int:
        """Estimate the same of messages by their ids, together."""
        at_hour, at_index = self._machine.wheel.places_of(hour, index)
        order = np.argsort(at_hour, kind="stable")
        return int(self.costs_ns(at_hour[order], at_index[order]).sum(dtype=np.int64))

    async def cancel(
        self, hour: Numbers, index: Numbers, outcomes: Numbers, chosen: Chosen, *, released: bool
    ) -> Refusal | None:
        """Cancel what is pending of messages, ids of shape (n,); set the outcomes of those that are chosen.

        ``chosen`` flags them by their places. ``released``: some may not be pending any more, and are
        answered without a commit. Raises what a proposal does.
        """
        wheel = self._machine.wheel
        at_hour, at_index = wheel.places_of(hour, index)
        order = np.argsort(at_hour, kind="stable")
        costs_ns = self.costs_ns(at_hour[order], at_index[order])
        for rows in portions(costs_ns, CANCEL_NS_MAX):
            piece = order[rows]
            piece = piece[chosen(*wheel.places_of(hour[piece], index[piece]))]
            if released:
                outcomes[piece] = OUTCOME_OF_STATE[wheel.states(*wheel.places_of(hour[piece], index[piece]))]
                piece = piece[outcomes[piece] == pb.CANCEL_OUTCOME_CANCELLED]
            if not len(piece):
                await asyncio.sleep(0)
                continue
            command = log_pb.CancelCommand(
                hour=hour[piece].tobytes(),
                global_index=index[piece].tobytes(),
                now_ms=self._time.now_ms(),
            )
            more_us = int(costs_ns[rows].sum(dtype=np.int64)) // 1_000
            outcome: Cancelled | Refusal = await self._driver.propose(
                self._machine.encode(command), cost_us(command) + more_us
            )
            if isinstance(outcome, Refusal):
                return outcome
            outcomes[piece] = outcome.outcomes
        return None
