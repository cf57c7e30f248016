"""The operator: status of the cluster, transfer of leadership, members, topics, groups and dead letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Unpack, cast

from grpc import aio

from tarry.client.cluster.calls import Calls, answers
from tarry.client.cluster.nodes import Nodes
from tarry.client.errors import InvalidQuery, InvalidSetting, TarryError, error_of_call
from tarry.client.integers import INT64_MAX, UINT32_MAX, UINT64_MAX, whole
from tarry.client.operators import cluster_settings, group_policy
from tarry.client.operators.audit_log import AuditPage, AuditTrail, read_all, read_node
from tarry.client.operators.cluster_settings import ClusterDescription, ClusterOptions
from tarry.client.operators.cluster_status import ClusterStatus, TopicStatus
from tarry.client.operators.group_policy import GroupDescription, PolicyOptions, check_fields
from tarry.client.operators.ledger_export import LedgerPart, Only
from tarry.client.operators.topic_settings import TopicOptions, options_of, packed
from tarry.client.queries.bulk_cancel import BulkCancel, steps
from tarry.client.start_position import Start, group_start
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_log_pb2 import ExportedColumns

EXPORT_PENDING: Final = "/tarry.v1.OperatorService/ExportPending"
"""Called without the stub: its columns are read as octets, not number by number."""


@dataclass(frozen=True, slots=True)
class Transferred:
    """Leadership has moved."""

    leader: str
    term: int
    pause_ms: int
    """Duration without accepted schedules."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its settings."""

    status: TopicStatus
    settings: TopicOptions
    """What the topic itself sets."""
    policy: PolicyOptions
    """Of its groups that set nothing: it has every field."""
    retention_ms: int
    """As it counts; 0: of a version that does not say."""
    set_by: Mapping[str, str]
    """Who sets each field of ``policy``, and ``retention_ms``: ``topic``, ``cluster``, ``default``, before
    level 2 ``node``; of a dead-letter topic's retention ``groups``, whose letters are there."""


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """Contents of a deleted topic."""

    released: int
    """Messages that its ready queue held."""
    groups: int
    pending: int
    """Messages, and retries of its groups, that were still to be released."""
    recurring: int = 0
    """Schedules that recur, which went with it."""


@dataclass(frozen=True, slots=True)
class Sought:
    """A group has moved, or in a dry run would move."""

    from_offset: int
    to_offset: int
    delivered_again: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """Numbers of dead letters examined, and returned to their groups."""

    looked_at: int
    redriven: int


class Operator:
    """Reads the status; administers leadership, members, topics and groups. Made by ``Client.operator``."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._calls = Calls(nodes)

    async def status(self, *, digest: bool = False, seconds_ahead: int = 0) -> ClusterStatus:
        """Return the cluster as the leader sees it, or any node where none leads.

        ``digest``: with that of its state, which costs the node some ms, and needs the right to operate.
        ``seconds_ahead``: of how many ``pending_ahead`` tells, 3,600 at most; with ``digest`` of none.
        """
        request = _status_request(digest, seconds_ahead)
        return self._learned(
            await self._calls.call(lambda node: node.operator.ClusterStatus, request, changes=False)
        )

    async def status_of(
        self, address: str, timeout_ms: int = 1_000, *, digest: bool = False, seconds_ahead: int = 0
    ) -> ClusterStatus:
        """Return the cluster as the node at this address sees it. Raises TarryError where it is silent.

        ``digest``, ``seconds_ahead``: as of ``status``.
        """
        request = _status_request(digest, seconds_ahead)
        try:
            response = await self._nodes.node(address).operator.ClusterStatus(
                request,
                timeout=timeout_ms / 1_000,
                metadata=self._nodes.metadata,
            )
        except aio.AioRpcError as failure:
            raise error_of_call(failure) from failure
        return self._learned(response)

    def _learned(self, response: operator_pb.ClusterStatusResponse) -> ClusterStatus:
        self._nodes.learn_members(member.address for member in response.members)
        return ClusterStatus.of(response)

    async def status_of_all(
        self, timeout_ms: int = 1_000, *, digest: bool = False, seconds_ahead: int = 0
    ) -> dict[str, ClusterStatus | TarryError]:
        """Return what each node says, or why it says nothing, by address; members that others name too.

        ``digest``, ``seconds_ahead``: as of ``status``.
        """
        found: dict[str, ClusterStatus | TarryError] = {}
        while addresses := sorted(set(self._nodes.addresses()) - found.keys()):
            answers = await asyncio.gather(
                *(
                    self.status_of(address, timeout_ms, digest=digest, seconds_ahead=seconds_ahead)
                    for address in addresses
                ),
                return_exceptions=True,
            )
            for address, answer in zip(addresses, answers, strict=True):
                if not isinstance(answer, ClusterStatus | TarryError):
                    raise answer
                found[address] = answer
        return dict(sorted(found.items()))

    async def transfer(self, target: str = "", *, deadline_ms: int = 0) -> Transferred:
        """Transfer leadership to ``target``: a node's name; empty: the follower that has most.

        Without duplicates. Raises TransferRefused where leadership stays, OutcomeUnknown where no
        answer came: then ask ``status``. Tried once: a second try could move it on.
        """
        request = operator_pb.TransferLeadershipRequest(target=target, deadline_ms=deadline_ms)
        response = await self._calls.call(
            lambda node: node.operator.TransferLeadership,
            request,
            once=True,
            attempt_ms=(deadline_ms or self._nodes.settings.deadline_ms) + 1_000,
        )
        return Transferred(response.leader, response.term, response.pause_ms)

    async def add_member(self, node: str, address: str, *, deadline_ms: int = 60_000) -> list[str]:
        """Make a running node, started with ``join``, a member; return the members' names.

        It first learns everything there is, within the deadline. Raises Refused where it cannot.
        """
        deadline_ms = min(deadline_ms, UINT32_MAX)
        request = operator_pb.AddMemberRequest(node=node, address=address, deadline_ms=deadline_ms)
        response = await self._calls.call(
            lambda at: at.operator.AddMember,
            request,
            once=True,
            deadline_ms=deadline_ms + 2_000,
            attempt_ms=deadline_ms + 1_000,
        )
        return [member.node for member in response.members]

    async def remove_member(self, node: str) -> list[str]:
        """Remove a member (a leader transfers leadership first); return the names of the others."""
        request = operator_pb.RemoveMemberRequest(node=node)
        response = await self._calls.call(lambda at: at.operator.RemoveMember, request, once=True)
        return [member.node for member in response.members]

    async def finish_upgrade(self) -> int:
        """Raise the cluster's level to the highest that every member can apply, and return it.

        No member can go back to an earlier version then. Raises UpgradeRefused, MembershipRefused.
        """
        request = operator_pb.FinishUpgradeRequest()
        return int((await self._calls.call(lambda node: node.operator.FinishUpgrade, request)).level)

    async def create_topic(self, topic: str, **options: Unpack[TopicOptions]) -> TopicDescription:
        """Make a topic, or give one that is there these settings and defaults else.

        Raises InvalidSetting where they do not go together.
        """
        request = operator_pb.CreateTopicRequest(topic=topic, settings=packed(options))
        return _described(await self._calls.call(lambda node: node.operator.CreateTopic, request))

    async def change_topic(
        self, topic: str, *, unset: Iterable[str] = (), **options: Unpack[TopicOptions]
    ) -> TopicDescription:
        """Change only these settings of a topic, of its ``group_policy`` only what is given, too.

        ``unset``: fields of its ``group_policy`` that it sets no more. Raises NotFound, InvalidSetting.
        """
        known, gone = (await self.describe_topic(topic)).settings, check_fields(unset)
        policy = known["group_policy"] | options.get("group_policy", {})
        left = cast(PolicyOptions, {name: value for name, value in policy.items() if name not in gone})
        return await self.create_topic(topic, **(known | options | {"group_policy": left}))

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Return a topic, its groups and settings. Raises NotFound."""
        request = operator_pb.DescribeTopicRequest(topic=topic)
        call = self._calls.call(lambda node: node.operator.DescribeTopic, request, changes=False)
        return _described(await call)

    async def delete_topic(self, topic: str) -> DeletedTopic:
        """Delete a topic with all in it, pending messages and schedules too; return what that was.

        Raises NotFound.
        """
        request = operator_pb.DeleteTopicRequest(topic=topic)
        response = await self._calls.call(lambda node: node.operator.DeleteTopic, request)
        return DeletedTopic(response.released, response.groups, response.pending, response.recurring)

    async def purge_topic(
        self, topic: str, *, cursor: str = "", dry_run: bool = False
    ) -> AsyncGenerator[BulkCancel]:
        """Cancel all of a topic that no consumer has been given, and yield how far that is; last ``done``.

        ``cursor``, ``dry_run``: as of ``Query.cancel_matching``. Retries are cancelled, too; what consumers
        have in hand stays theirs, and what is rescheduled meanwhile may be left out. Raises NotFound,
        NotPermitted, UpgradeRefused.
        """
        request = operator_pb.PurgeTopicRequest(topic=topic, cursor=cursor, dry_run=dry_run)
        async for told in steps(self._calls, lambda node: node.operator.PurgeTopic, request):
            yield told

    async def create_group(
        self, topic: str, group: str, start: Start = "earliest", *, expiry_ms: int = 0
    ) -> int:
        """Make a group for consumers to come; return the offset where it begins, or is if it was there.

        ``expiry_ms``: it is deleted when nobody has used it for so long; 0: never. Of a group that is there
        only that changes, whoever made it.
        """
        request = operator_pb.CreateGroupRequest(
            topic=topic,
            group=group,
            start=group_start(start),
            expiry_ms=whole("expiry_ms", expiry_ms, InvalidSetting, Reason.SETTING_INVALID, UINT64_MAX),
        )
        response = await self._calls.call(lambda node: node.operator.CreateGroup, request)
        return int(response.offset)

    async def delete_group(self, topic: str, group: str) -> int:
        """Delete a group; return how many messages it had yet to acknowledge. Raises NotFound."""
        request = operator_pb.DeleteGroupRequest(topic=topic, group=group)
        response = await self._calls.call(lambda node: node.operator.DeleteGroup, request)
        return int(response.unacknowledged)

    async def set_group(
        self, topic: str, group: str, *, unset: Iterable[str] = (), **options: Unpack[PolicyOptions]
    ) -> GroupDescription:
        """Change a group's own policy: only these fields, and ``unset`` those that it sets no more.

        It counts for what is delivered from then on. Raises NotFound, InvalidSetting.
        """
        request = operator_pb.SetGroupRequest(
            topic=topic, group=group, policy=group_policy.packed(options), unset=check_fields(unset)
        )
        return GroupDescription.of(await self._calls.call(lambda node: node.operator.SetGroup, request))

    async def describe_group(self, topic: str, group: str) -> GroupDescription:
        """Return a group, and its policy as it counts. Raises NotFound."""
        request = operator_pb.DescribeGroupRequest(topic=topic, group=group)
        call = self._calls.call(lambda node: node.operator.DescribeGroup, request, changes=False)
        return GroupDescription.of(await call)

    async def set_cluster(
        self, *, unset: Iterable[str] = (), **options: Unpack[ClusterOptions]
    ) -> ClusterDescription:
        """Change the cluster's settings: only these, and ``unset`` those that are set no more.

        They count at once for all topics and groups that set nothing else. Raises InvalidSetting.
        """
        request = operator_pb.SetClusterRequest(
            settings=cluster_settings.packed(options), unset=cluster_settings.sent_names(unset)
        )
        return ClusterDescription.of(await self._calls.call(lambda node: node.operator.SetCluster, request))

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's settings, and who sets each."""
        request = operator_pb.DescribeClusterRequest()
        call = self._calls.call(lambda node: node.operator.DescribeCluster, request, changes=False)
        return ClusterDescription.of(await call)

    async def seek_group(
        self,
        topic: str,
        group: str,
        to: Start | None = None,
        *,
        offset: int | None = None,
        dry_run: bool = False,
    ) -> Sought:
        """Move a group to a place in its topic: ``to``, or an offset. Raises NotFound, InvalidSetting.

        What lies behind is delivered again, what is skipped is not delivered to
        it any more; a dry run only counts both.
        """
        request = operator_pb.SeekGroupRequest(topic=topic, group=group, dry_run=dry_run)
        if offset is not None and to is None:
            request.offset = whole("offset", offset, InvalidSetting, Reason.SEEK_INVALID, UINT64_MAX)
        elif to is not None and offset is None:
            request.start.CopyFrom(group_start(to))
        else:
            raise InvalidSetting(Reason.SEEK_INVALID, "give one of to and offset")
        response = await self._calls.call(lambda node: node.operator.SeekGroup, request, changes=not dry_run)
        return Sought(response.from_offset, response.to_offset, response.delivered_again, response.skipped)

    async def redrive(
        self,
        topic: str,
        *,
        reason: str = "",
        tags: Iterable[str] = (),
        messages_max: int = 0,
        dry_run: bool = False,
        on_progress: Callable[[Redriven], None] | None = None,
    ) -> Redriven:
        """Give dead letters of a dead-letter topic to the groups that gave them up, once more.

        ``reason``, ``tags``: only letters with these; ``messages_max`` 0: all;
        ``on_progress`` runs on the client's event loop.
        Raises OutcomeUnknown where the leader is lost on the way: what was given
        back by then is, and calling again goes on with the rest.
        """
        request = operator_pb.RedriveRequest(
            topic=topic,
            reason=reason,
            tags=tags,
            messages_max=whole(
                "messages_max", messages_max, InvalidSetting, Reason.SETTING_INVALID, UINT64_MAX
            ),
            dry_run=dry_run,
        )
        done = Redriven(0, 0)
        async for response in self._calls.stream(lambda node: node.operator.Redrive, request):
            done = Redriven(response.looked_at, response.redriven)
            if on_progress is not None:
                on_progress(done)
        return done

    def addresses(self) -> list[str]:
        """Return the addresses of all nodes that are known so far; ``status`` learns them."""
        return sorted(self._nodes.addresses())

    async def export_ledger(self, address: str, **only: Unpack[Only]) -> AsyncGenerator[LedgerPart]:
        """Yield what the node at an address wrote down, oldest first, until now.

        Raises NotPermitted, InvalidSetting, Overloaded, Unavailable; an export that is cut off goes on
        with the ``resume`` of the last part.
        """
        try:
            request = operator_pb.ExportLedgerRequest(**only)
        except ValueError as error:
            raise InvalidSetting(
                Reason.EXPORT_INVALID, f"a bound is beyond what can be asked for: {error}"
            ) from None
        node = self._nodes.node(address)
        call = node.operator.ExportLedger(request, metadata=self._nodes.metadata)
        async with aclosing(answers(call)) as parts:
            async for part in parts:
                yield LedgerPart(json.loads(part.segment), part.rows, part.count, part.resume)

    async def backup(
        self, address: str, *, kept: Iterable[operator_pb.BackupFile] = (), index_min: int = 0
    ) -> AsyncGenerator[operator_pb.BackupResponse]:
        """Yield the state of the node at an address: a manifest, then its files without what is ``kept``.

        ``index_min``: the entry that it has to have. ``tarry.proto.backup_folder`` writes it to a folder.
        Raises NotPermitted, NoRoom, Overloaded, Unavailable.
        """
        request = operator_pb.BackupRequest(kept=kept, index_min=index_min)
        call = self._nodes.node(address).operator.Backup(request, metadata=self._nodes.metadata)
        async with aclosing(answers(call)) as parts:
            async for part in parts:
                yield part

    async def read_audit(
        self,
        address: str,
        *,
        cursor: str = "",
        from_ms: int = 0,
        to_ms: int = 0,
        token: str = "",
        method: str = "",
        lines_max: int = 100,
        timeout_ms: int = 5_000,
    ) -> AuditPage:
        """Return lines of the audit log of the node at an address, the newest first; ``cursor``: older ones.

        A page may have no line and a cursor: a call looks at 256 KiB of the log. ``from_ms``, ``to_ms`` (0:
        now): times of lines; ``token``, ``method``: only calls with the token of this name, or so called;
        ``lines_max``: 500 at most. Raises NotPermitted, InvalidQuery, Overloaded, Unavailable.
        """
        request = operator_pb.ReadAuditRequest(
            cursor=cursor,
            from_ms=whole("from_ms", from_ms, InvalidQuery, Reason.QUERY_INVALID, INT64_MAX),
            to_ms=whole("to_ms", to_ms, InvalidQuery, Reason.QUERY_INVALID, INT64_MAX),
            token=token,
            method=method,
            lines_max=whole("lines_max", lines_max, InvalidQuery, Reason.QUERY_INVALID, UINT32_MAX),
        )
        node = self._nodes.node(address)
        try:
            response = await node.operator.ReadAudit(
                request, timeout=timeout_ms / 1_000, metadata=self._nodes.metadata
            )
        except aio.AioRpcError as failure:
            raise error_of_call(failure) from failure
        return AuditPage.of(response)

    async def audit(
        self,
        *,
        from_ms: int = 0,
        to_ms: int = 0,
        token: str = "",
        method: str = "",
        lines_max: int = 100,
        readings: bool = True,
        timeout_ms: int = 5_000,
    ) -> AuditTrail:
        """Return lines of the audit logs of all nodes, the newest first; it says which did not answer.

        ``lines_max``: of each node; ``readings``: also those of calls that read the logs, as this one; the
        others as of ``read_audit``, for each call. ``older_to_ms`` of the answer is the ``to_ms`` of what is
        older. Raises NotPermitted, InvalidQuery, Unavailable.
        """
        await self.status()  # also learns the addresses of all members

        async def node(address: str) -> AuditPage | TarryError:
            async def read(cursor: str) -> AuditPage:
                return await self.read_audit(
                    address,
                    cursor=cursor,
                    from_ms=from_ms,
                    to_ms=to_ms,
                    token=token,
                    method=method,
                    lines_max=lines_max,
                    timeout_ms=timeout_ms,
                )

            return await read_node(read, lines_max, readings=readings)

        return await read_all(self.addresses(), node)

    async def export_pending(
        self,
        address: str,
        *,
        topics: Iterable[str] = (),
        due_from_ms: int = 0,
        due_to_ms: int = 0,
        index_min: int = 0,
    ) -> AsyncGenerator[ExportedColumns]:
        """Yield what is pending at the node at an address as of one entry: a head, messages, an end.

        Of the topics, or all; ``due_from_ms``, ``due_to_ms``: only what is due from then on, and before then;
        ``index_min``: the entry that it has to have. ``Bulk.export`` writes it to Parquet.
        Raises NotPermitted, NotFound, InvalidSetting, NoRoom, Overloaded, Unavailable.
        """
        try:
            request = operator_pb.ExportPendingRequest(
                topics=topics, due_from_ms=due_from_ms, due_to_ms=due_to_ms, index_min=index_min
            )
        except ValueError as error:
            text = f"a bound is beyond what can be asked for: {error}"
            raise InvalidSetting(Reason.EXPORT_INVALID, text) from None
        call = self._nodes.node(address).channel.unary_stream(
            EXPORT_PENDING,
            request_serializer=operator_pb.ExportPendingRequest.SerializeToString,
            response_deserializer=ExportedColumns.FromString,
        )
        async with aclosing(answers(call(request, metadata=self._nodes.metadata))) as parts:
            async for part in parts:
                yield part


def _described(response: operator_pb.DescribeTopicResponse) -> TopicDescription:
    return TopicDescription(
        TopicStatus.of(response.topic),
        options_of(response.settings),
        group_policy.options_of(response.policy),
        response.retention_ms,
        dict(response.set_by),
    )


def _status_request(digest: bool, seconds_ahead: int) -> operator_pb.ClusterStatusRequest:
    seconds = whole("seconds_ahead", seconds_ahead, InvalidSetting, Reason.SETTING_INVALID)
    return operator_pb.ClusterStatusRequest(digest=digest, seconds_ahead=seconds)
