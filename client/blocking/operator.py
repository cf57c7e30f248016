"""The blocking operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Unpack

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import blocking
from tarry.client.operators.cluster_operator import Operator as AsyncOperator
from tarry.client.operators.ledger_export import LedgerPart, Only
from tarry.client.queries.bulk_cancel import BulkCancel
from tarry.proto import tarry_operator_pb2 as operator_pb


class Operator:
    """Reads the status; administers leadership, members, topics and groups. Made by ``Client.operator``."""

    def __init__(self, operator: AsyncOperator, thread: LoopThread) -> None:
        self._twin = operator
        self._thread = thread

    status = blocking(AsyncOperator.status)
    status_of = blocking(AsyncOperator.status_of)
    status_of_all = blocking(AsyncOperator.status_of_all)
    transfer = blocking(AsyncOperator.transfer)
    add_member = blocking(AsyncOperator.add_member)
    remove_member = blocking(AsyncOperator.remove_member)
    finish_upgrade = blocking(AsyncOperator.finish_upgrade)
    create_topic = blocking(AsyncOperator.create_topic)
    change_topic = blocking(AsyncOperator.change_topic)
    describe_topic = blocking(AsyncOperator.describe_topic)
    delete_topic = blocking(AsyncOperator.delete_topic)
    create_group = blocking(AsyncOperator.create_group)
    delete_group = blocking(AsyncOperator.delete_group)
    set_group = blocking(AsyncOperator.set_group)
    describe_group = blocking(AsyncOperator.describe_group)
    set_cluster = blocking(AsyncOperator.set_cluster)
    describe_cluster = blocking(AsyncOperator.describe_cluster)
    seek_group = blocking(AsyncOperator.seek_group)
    redrive = blocking(AsyncOperator.redrive)

    def purge_topic(self, topic: str, *, cursor: str = "", dry_run: bool = False) -> Iterator[BulkCancel]:
        """Cancel all of a topic that no consumer has been given, and yield how far that is; last ``done``.

        ``cursor``, ``dry_run``: as of ``Query.cancel_matching``. Retries are cancelled, too; what consumers
        have in hand stays theirs. Raises NotFound, NotPermitted, UpgradeRefused.
        """
        parts = self._twin.purge_topic(topic, cursor=cursor, dry_run=dry_run)
        try:
            while (told := self._thread.run(anext(parts, None))) is not None:
                yield told
        finally:
            self._thread.run(parts.aclose())

    def addresses(self) -> list[str]:
        """Return the addresses of all nodes that are known so far; ``status`` learns them."""
        return self._twin.addresses()

    def export_ledger(self, address: str, **only: Unpack[Only]) -> Iterator[LedgerPart]:
        """Yield what the node at an address wrote down, oldest first, until now.

        Raises NotPermitted, InvalidSetting, Overloaded, Unavailable; an export that is cut off goes on
        with the ``resume`` of the last part.
        """
        parts = self._twin.export_ledger(address, **only)
        try:
            while (part := self._thread.run(anext(parts, None))) is not None:
                yield part
        finally:
            self._thread.run(parts.aclose())

    def backup(
        self, address: str, *, kept: Iterable[operator_pb.BackupFile] = (), index_min: int = 0
    ) -> Iterator[operator_pb.BackupResponse]:
        """Yield the state of the node at an address: a manifest, then its files without what is ``kept``.

        ``index_min``: the entry that it has to have. ``tarry.proto.backup_folder`` writes it to a folder.
        Raises NotPermitted, NoRoom, Overloaded, Unavailable.
        """
        parts = self._twin.backup(address, kept=kept, index_min=index_min)
        try:
            while (part := self._thread.run(anext(parts, None))) is not None:
                yield part
        finally:
            self._thread.run(parts.aclose())
