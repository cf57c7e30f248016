"""Requests at their limits, of transactions."""

from __future__ import annotations

from google.protobuf.message import Message

from tarry.node.services.transactions import CHECK_AFTER_MS_MAX, NAME_CHARS_MAX, PAGE_MAX
from tarry.proto import tarry_transaction_pb2 as pb
from tests.cluster.limit_play import LIMITS, PATIENCE_S, Play
from tests.cluster.limit_rows import LARGEST, row

TRANSACTIONS = 1_500
"""More than a page has."""


@row(
    "ProducerService/Prepare",
    "ProducerService/EndTransaction",
    "ProducerService/ListTransactions",
    "ProducerService/Checks",
)
def the_largest_transactions_and_pages(play: Play) -> None:
    def call(name: str, request: Message) -> bytes:
        (answer,) = play.call(f"ProducerService/{name}", request.SerializeToString())
        return answer

    topic, group, name = play.name(), "g" * LIMITS.group_chars_max, "n" * NAME_CHARS_MAX
    small = (
        pb.PrepareRequest(producer_group=group, transaction=f"t{number}", topic=topic, delay_ms=0)
        for number in range(TRANSACTIONS)
    )
    play.calls("ProducerService/Prepare", small)
    largest = pb.PrepareRequest(
        producer_group=group,
        transaction=name,
        topic=topic,
        record=LARGEST,
        delay_ms=0,
        check_after_ms=CHECK_AFTER_MS_MAX,
    )
    call("Prepare", largest)
    page = pb.ListTransactionsResponse.FromString(
        call("ListTransactions", pb.ListTransactionsRequest(topic=topic, page_size=PAGE_MAX))
    )
    assert len(page.transactions) == PAGE_MAX
    subscribe = pb.ChecksRequest(subscribe=pb.ChecksSubscribe(producer_group=group))
    commit = pb.CheckAnswer(transaction=name, end=pb.TRANSACTION_END_COMMIT)
    list(play.node.producer.Checks(iter((subscribe, pb.ChecksRequest(answer=commit))), timeout=PATIENCE_S))
    end = pb.EndTransactionRequest(producer_group=group, transaction=name, end=pb.TRANSACTION_END_COMMIT)
    assert pb.EndTransactionResponse.FromString(call("EndTransaction", end)).repeated
