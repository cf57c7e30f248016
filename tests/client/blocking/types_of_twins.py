"""Types of the blocking client's calls, for mypy; nothing here runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

from tarry.client import sync
from tarry.client.consumers.message import View
from tarry.client.errors import TarryError
from tarry.client.operators.ledger_export import LedgerPart


def producer(client: sync.Client) -> None:
    producer = client.producer()
    assert_type(producer, sync.Producer)
    assert_type(producer.schedule("t", b"", delay_ms=1, tags=["a"], ordering_key="k"), sync.Scheduled)
    assert_type(producer.schedule_batch("t", [b""], due_ms=[1], tags=[["a"]]), sync.ScheduledBatch)
    assert_type(producer.cancel("id"), sync.CancelOutcome)
    assert_type(producer.cancel_many(["id"]), list[sync.CancelOutcome])
    assert_type(producer.reschedule("id", delay_ms=1), sync.Change)
    assert_type(producer.reschedule_many(["id"], due_ms=[1]), list[sync.Change])
    assert_type(producer.update("id", body=b""), sync.Change)
    assert_type(producer.get("id"), sync.StoredMessage)
    producer.schedule("t", delay_ms="1")  # type: ignore[arg-type]
    producer.schedule("t", delay=1)  # type: ignore[call-arg]
    producer.schedule_batch("t", [b""], [1])  # type: ignore[call-arg]
    producer.get()  # type: ignore[call-arg]


def consumer(client: sync.Client) -> None:
    consumer = client.consumer("t", "g", tags=["a"], credit=1, dedupe=True, start="earliest")
    assert_type(consumer, sync.Consumer)
    for message in consumer:
        assert_type(message, sync.Message)
        assert_type(message.ack(), sync.AckOutcome)
        assert_type(message.nack(delay_ms=1), sync.AckOutcome)
        assert_type(message.extend(1), sync.AckOutcome)
    for batch in consumer.batches():
        assert_type(batch, sync.MessageBatch)
        assert_type(batch.ack(), list[sync.AckOutcome])
        assert_type(batch.nack(), list[sync.AckOutcome])
        assert_type(batch.extend(lease_ms=1), list[sync.AckOutcome])
    message.extend()  # type: ignore[call-arg]
    client.consumer("t", "g", credits=1)  # type: ignore[call-arg]


def puller(client: sync.Client) -> None:
    puller = client.puller("t", "g", name="n", lease_ms=1)
    messages = puller.receive(10, wait_ms=1)
    assert_type(messages, list[View])
    assert_type(puller.ack(messages), list[sync.AckOutcome])
    assert_type(puller.nack(messages, delay_ms=1), list[sync.AckOutcome])
    assert_type(puller.extend(messages, 1), list[sync.AckOutcome])
    client.puller("t", "g", credit=1)  # type: ignore[call-arg]


def query(client: sync.Client) -> None:
    query = client.query()
    assert_type(query.cancel_matching("t", tags=["a"], cursor="c"), Iterator[sync.BulkCancel])
    assert_type(query.count_matching("t", key_prefix="k"), int)
    query.cancel_matching("t", tag="a")  # type: ignore[call-arg]


def transactions(client: sync.Client) -> None:
    def check(half: sync.Half) -> sync.TransactionEnd:
        return sync.TransactionEnd.COMMIT

    with client.producer(group="g", check=check).transaction("t", b"x", delay_ms=1) as transaction:
        assert_type(transaction.info, sync.TransactionInfo | None)
    transactions = client.transactions()
    assert_type(transactions.prepare("g", "t", delay_ms=1), sync.TransactionInfo)
    assert_type(transactions.commit("g", "n"), sync.TransactionInfo)
    assert_type(transactions.list_page(ended=True), sync.TransactionPage)
    assert_type(transactions.list(limit=1), Iterator[sync.TransactionInfo])


def recurring(client: sync.Client) -> None:
    recurring = client.recurring()
    timing = sync.Cron("* * * * *", "Europe/Berlin")
    assert_type(recurring.put("s", "t", b"x", timing=timing, jitter_ms=1), sync.RecurringSchedule)
    assert_type(recurring.get("s"), sync.RecurringSchedule)
    assert_type(recurring.history("s"), tuple[sync.Fire, ...])
    assert_type(recurring.list_page("t", prefix="s", size=1), sync.SchedulePage)
    assert_type(recurring.list("t", limit=1), Iterator[sync.RecurringSchedule])
    assert_type(recurring.pause("s", if_revision=1), sync.RecurringSchedule)
    assert_type(recurring.resume("s"), sync.RecurringSchedule)
    assert_type(recurring.trigger("s", if_triggered=0), sync.Triggered)
    assert_type(recurring.next_fires(timing=sync.Interval(1_000), count=1), sync.NextFires)
    recurring.delete("s", if_revision=1)
    recurring.put("s", "t", timing=timing, due_ms=1)  # type: ignore[call-arg]


def operator(client: sync.Client) -> None:
    operator = client.operator()
    assert_type(operator.status(digest=True), sync.ClusterStatus)
    assert_type(operator.status_of("a", 1, digest=True), sync.ClusterStatus)
    assert_type(operator.status_of_all(), dict[str, sync.ClusterStatus | TarryError])
    assert_type(operator.transfer("n", deadline_ms=1), sync.Transferred)
    assert_type(operator.add_member("n", "a", deadline_ms=1), list[str])
    assert_type(operator.remove_member("n"), list[str])
    assert_type(operator.finish_upgrade(), int)
    assert_type(operator.create_topic("t", retention_ms=1, misfire=sync.Misfire.DROP), sync.TopicDescription)
    assert_type(operator.change_topic("t", pending_max=1), sync.TopicDescription)
    assert_type(operator.describe_topic("t"), sync.TopicDescription)
    assert_type(operator.delete_topic("t"), sync.DeletedTopic)
    assert_type(operator.purge_topic("t", dry_run=True), Iterator[sync.BulkCancel])
    assert_type(operator.create_group("t", "g", "latest"), int)
    assert_type(operator.delete_group("t", "g"), int)
    assert_type(operator.set_group("t", "g", back_off=(1, 2), unset=["lease_ms"]), sync.GroupDescription)
    assert_type(operator.describe_group("t", "g"), sync.GroupDescription)
    assert_type(operator.set_cluster(retention_ms=1, unset=["lease_ms"]), sync.ClusterDescription)
    assert_type(operator.describe_cluster(), sync.ClusterDescription)
    assert_type(operator.seek_group("t", "g", offset=1, dry_run=True), sync.Sought)
    assert_type(operator.redrive("t", tags=["a"], on_progress=print), sync.Redriven)
    assert_type(operator.export_ledger("a", from_ms=1), Iterator[LedgerPart])
    operator.create_topic("t", retention=1)  # type: ignore[call-arg]
