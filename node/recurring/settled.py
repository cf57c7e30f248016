"""Settlement of a schedule's last message: its overlap policy asks whether every group is done with it."""

from __future__ import annotations

from typing import Final

from tarry.node.delivery.delivery import Delivery
from tarry.node.delivery.lives import columns_of
from tarry.proto import tarry_query_pb2 as pb
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.state import MessageState, UnknownMessage

DONE: Final = (pb.GROUP_STATE_DONE, pb.GROUP_STATE_CANCELLED, pb.GROUP_STATE_GONE)


async def is_settled(machine: Machine, delivery: Delivery, hour: int, global_index: int) -> bool:
    """Return whether a message, by its id, waits for nothing: neither it nor a retry of it, in any group.

    Of a topic without a group a message is settled as it is released, and so is one that has misfired and
    gone to another topic, whatever groups look at it there; of more groups than are told of one message
    (`lives.GROUPS_MAX`) the others are not asked. Raises UnitsDamaged and WheelDamaged.
    """
    wheel = machine.wheel
    places = wheel.places_of(*columns_of((hour, global_index)))
    place = int(places[0][0]), int(places[1][0])
    try:
        state = wheel.state(*place)
        if state is MessageState.PENDING:
            return False
        if state not in (MessageState.RELEASED, MessageState.CANCELLED):
            return True
        units = wheel.units(*columns_of(place))
        due_ms = int(machine.due_ms(*columns_of(place))[0])
    except UnknownMessage:  # its hour was deleted, or thinned: of what every group has passed
        return True
    queue = machine.queues[int(queue_of(units["topic"])[0])]
    if queue.deleted or queue.group:
        return True
    told = await delivery.lives.tell(queue, place, due_ms, state)
    return told.queue_topic != queue.topic or all(group.state in DONE for group in told.groups)
