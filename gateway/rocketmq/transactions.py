"""Operations of transactions: prepare a message that nobody is given yet, and end its transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

from google.protobuf.duration_pb2 import Duration

from tarry.client.aio import NewMessage, TransactionState
from tarry.client.errors import Refused
from tarry.gateway.rocketmq.call import Call
from tarry.gateway.rocketmq.codes import Refusal, status
from tarry.gateway.rocketmq.handles import Prepared
from tarry.gateway.rocketmq.names import producer_group_of
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code, Resource, TransactionResolution


async def prepare(
    call: Call, request: service.SendMessageRequest, messages: Sequence[NewMessage]
) -> service.SendMessageResponse:
    """Prepare the one message of a request, checked before. Its id is the transaction's name."""
    if len(messages) > 1:
        raise Refusal(Code.BAD_REQUEST, "a transaction has one message: send each by a request of its own")
    (message,), (given,) = messages, request.messages
    after_ms = _check_after_ms(given.system_properties.orphaned_transaction_recovery_duration)
    with call.gateway.admission.sent.taken(request.ByteSize()), _asked(call, given.topic):
        async with asyncio.timeout(call.budget_s):
            info = await call.access.client.transactions().prepare(
                producer_group_of(message.topic),
                message.topic,
                message.body,
                name=message.idempotency_key,
                due_ms=message.due_ms,
                delay_ms=message.delay_ms,
                check_after_ms=after_ms,
                tags=message.tags,
                keys=message.keys,
                properties=message.properties,
                ordering_key=message.ordering_key,
            )
    if info.state is not TransactionState.OPEN:  # or its client would do what can end no more
        text = f"the transaction of this message id has ended before: it is {info.state.upper()}"
        raise Refusal(Code.ILLEGAL_MESSAGE_ID, text)
    entry = service.SendResultEntry(
        status=status(),
        message_id=info.name,
        transaction_id=call.gateway.handles.transaction(Prepared(info.topic, info.name)),
    )
    return service.SendMessageResponse(status=status(), entries=[entry])


@contextlib.contextmanager
def _asked(call: Call, topic: Resource) -> Iterator[None]:
    """Have the client asked about transactions of a topic, unless the cluster refuses this one."""
    try:
        yield
    except Refused:
        raise
    except BaseException:  # it may count all the same
        call.gateway.checks.sends(call.caller, topic, call.namespace)
        raise
    call.gateway.checks.sends(call.caller, topic, call.namespace)


def _check_after_ms(duration: Duration) -> int | None:
    """Return how long after it was prepared a transaction is first asked about, as its client says."""
    milliseconds = duration.seconds * 1_000 + duration.nanos // 1_000_000
    if milliseconds < 0:
        raise Refusal(Code.BAD_REQUEST, "the orphaned transaction recovery duration is negative")
    return milliseconds or None


async def end(call: Call, request: service.EndTransactionRequest) -> service.EndTransactionResponse:
    """Commit or roll back. The answer is definite; an end that is not known yet changes nothing."""
    topic = call.topic_of(request.topic)
    try:
        prepared = call.gateway.handles.parse_transaction(request.transaction_id)
    except ValueError as error:
        raise Refusal(Code.INVALID_TRANSACTION_ID, str(error)) from None
    if prepared.topic != topic:
        raise Refusal(Code.INVALID_TRANSACTION_ID, "transaction id is of another topic")
    transactions, group = call.access.client.transactions(), producer_group_of(topic)
    async with asyncio.timeout(call.budget_s):
        match request.resolution:
            case TransactionResolution.COMMIT:
                await transactions.commit(group, prepared.name)
            case TransactionResolution.ROLLBACK:
                await transactions.rollback(group, prepared.name)
    return service.EndTransactionResponse(status=status())
