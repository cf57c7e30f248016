"""The blocking operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Unpack

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.errors import TarryError
from tarry.client.operators.cluster_operator import Operator as AsyncOperator
from tarry.client.operators.cluster_operator import Redriven, Sought, TopicDescription, Transferred
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.client.operators.ledger_export import LedgerPart, Only
from tarry.client.operators.topic_settings import TopicOptions
from tarry.client.start_position import Start


class Operator:
    """Asks how the cluster is, and moves leadership. Made by ``Client.operator``."""

    def __init__(self, operator: AsyncOperator, thread: LoopThread) -> None:
        self._operator = operator
        self._thread = thread

    def status(self, *, digest: bool = False) -> ClusterStatus:
        """Return the cluster as the leader sees it, as the async twin does."""
        return self._thread.run(self._operator.status(digest=digest))

    def status_of(self, address: str, timeout_ms: int = 1_000, *, digest: bool = False) -> ClusterStatus:
        """Return the cluster as the node at this address sees it. Raises TarryError where it is silent."""
        return self._thread.run(self._operator.status_of(address, timeout_ms, digest=digest))

    def status_of_all(
        self, timeout_ms: int = 1_000, *, digest: bool = False
    ) -> dict[str, ClusterStatus | TarryError]:
        """Return what each node says, or why it says nothing, by address."""
        return self._thread.run(self._operator.status_of_all(timeout_ms, digest=digest))

    def transfer(self, target: str = "", *, deadline_ms: int = 0) -> Transferred:
        """Transfer leadership to ``target``, as the async twin does."""
        return self._thread.run(self._operator.transfer(target, deadline_ms=deadline_ms))

    def add_member(self, node: str, address: str, *, deadline_ms: int = 60_000) -> list[str]:
        """Make a running node, started with ``join``, a member; return the members' names."""
        return self._thread.run(self._operator.add_member(node, address, deadline_ms=deadline_ms))

    def remove_member(self, node: str) -> list[str]:
        """Remove a member (a leader transfers leadership first); return the names of the others."""
        return self._thread.run(self._operator.remove_member(node))

    def create_topic(self, topic: str, **options: Unpack[TopicOptions]) -> TopicDescription:
        """Make a topic, or give one that is there these settings and defaults else."""
        return self._thread.run(self._operator.create_topic(topic, **options))

    def change_topic(self, topic: str, **options: Unpack[TopicOptions]) -> TopicDescription:
        """Change only these settings of a topic. Raises NotFound, InvalidSetting."""
        return self._thread.run(self._operator.change_topic(topic, **options))

    def describe_topic(self, topic: str) -> TopicDescription:
        """Return a topic, its groups and settings. Raises NotFound."""
        return self._thread.run(self._operator.describe_topic(topic))

    def delete_topic(self, topic: str) -> int:
        """Delete a topic with all in it; return how many messages its ready queue held."""
        return self._thread.run(self._operator.delete_topic(topic))

    def create_group(self, topic: str, group: str, start: Start = "earliest") -> int:
        """Make a group for consumers to come; return the offset where it begins, or is if it was there."""
        return self._thread.run(self._operator.create_group(topic, group, start))

    def delete_group(self, topic: str, group: str) -> int:
        """Delete a group; return how many messages it had yet to acknowledge."""
        return self._thread.run(self._operator.delete_group(topic, group))

    def seek_group(
        self,
        topic: str,
        group: str,
        to: Start | None = None,
        *,
        offset: int | None = None,
        dry_run: bool = False,
    ) -> Sought:
        """Move a group to a place in its topic, as the async twin does."""
        return self._thread.run(self._operator.seek_group(topic, group, to, offset=offset, dry_run=dry_run))

    def addresses(self) -> list[str]:
        """Return the addresses of all nodes that are known so far; ``status`` learns them."""
        return self._operator.addresses()

    def export_ledger(self, address: str, **only: Unpack[Only]) -> Iterator[LedgerPart]:
        """Yield what the node at an address wrote down, as the async twin does."""
        parts = self._operator.export_ledger(address, **only)
        try:
            while (part := self._thread.run(anext(parts, None))) is not None:
                yield part
        finally:
            self._thread.run(parts.aclose())

    def redrive(
        self,
        topic: str,
        *,
        reason: str = "",
        tags: Iterable[str] = (),
        messages_max: int = 0,
        dry_run: bool = False,
        on_progress: Callable[[Redriven], None] | None = None,
    ) -> Redriven:
        """Give dead letters back, as the async twin does; ``on_progress`` runs in the client's thread."""
        return self._thread.run(
            self._operator.redrive(
                topic,
                reason=reason,
                tags=tags,
                messages_max=messages_max,
                dry_run=dry_run,
                on_progress=on_progress,
            )
        )
