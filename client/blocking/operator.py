"""The blocking operator."""

from __future__ import annotations

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import blocking, iterating
from tarry.client.operators.cluster_operator import Operator as AsyncOperator


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

    read_audit = blocking(AsyncOperator.read_audit)
    audit = blocking(AsyncOperator.audit)

    purge_topic = iterating(AsyncOperator.purge_topic)

    def addresses(self) -> list[str]:
        """Return the addresses of all nodes that are known so far; ``status`` learns them."""
        return self._twin.addresses()

    export_ledger = iterating(AsyncOperator.export_ledger)

    backup = iterating(AsyncOperator.backup)

    export_pending = iterating(AsyncOperator.export_pending)
