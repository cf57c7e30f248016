"""A stored message in calls: its id as requests name it, its state as answers tell it."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.proto.message_id import InvalidMessageId, MessageId, parse_ids
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import MessageState
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import MessageState as WheelMessageState

Columns: TypeAlias = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""Hour and global index of messages, shape (n,)."""
STATES: Final = {
    WheelMessageState.PENDING: MessageState.MESSAGE_STATE_PENDING,
    WheelMessageState.RELEASED: MessageState.MESSAGE_STATE_RELEASED,
    WheelMessageState.CANCELLED: MessageState.MESSAGE_STATE_CANCELLED,
}
"""What is told of each state of the wheel; messages in others are not there."""
DAMAGED: Final = Refusal(Reason.MESSAGE_DAMAGED, "no node in reach has the message's record whole")


def ids_of(texts: list[str], shard: int) -> Columns | Refusal:
    """Return what ids name, if all are of this cluster's shard."""
    try:
        shards, hour, index = parse_ids(texts)
    except InvalidMessageId as error:
        return Refusal(Reason.ID_MALFORMED, str(error))
    others = shards != shard
    if others.any():
        first = int(others.argmax())
        found = MessageId(int(shards[first]), int(hour[first]), int(index[first]))
        text = f"{found} belongs to shard {found.shard}; this cluster is shard {shard}"
        return Refusal(Reason.MESSAGE_NOT_FOUND, text)
    return hour, index


def id_of(text: str, shard: int) -> MessageId | Refusal:
    """Return a message's id, if it is of this cluster's shard."""
    found = ids_of([text], shard)
    return found if isinstance(found, Refusal) else MessageId(shard, int(found[0][0]), int(found[1][0]))
