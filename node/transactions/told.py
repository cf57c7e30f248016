"""Transactions as callers are told of them."""

from __future__ import annotations

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.message_id import MessageId


def told(state: log_pb.TransactionCheckpoint, shard: int) -> pb.Transaction:
    """Return a transaction in the API's words."""
    transaction = pb.Transaction(
        number=state.number,
        producer_group=state.producer_group,
        transaction=state.transaction,
        topic=state.topic,
        state=state.state,
        prepared_ms=state.prepared_ms,
        checks=state.checks,
        ended_ms=state.ended_ms,
    )
    if state.HasField("due_ms"):
        transaction.due_ms = state.due_ms
    else:
        transaction.delay_ms = state.delay_ms
    if state.state == pb.TRANSACTION_STATE_OPEN:
        transaction.next_check_ms = state.next_ms
    elif state.state == pb.TRANSACTION_STATE_COMMITTED:
        transaction.id = str(MessageId(shard, state.place_hour, state.place_index))
        transaction.message_due_ms = state.next_ms
    return transaction
