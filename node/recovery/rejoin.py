"""Rejoin of a node that lost its data: it leaves the cluster, and comes back as a newcomer.

    data/damaged-1/   what was set aside, for whoever wants to look at it
    data/rejoining    "leaving"  until the others have agreed that it is no member: nothing runs here;
                                 with the incarnation of its journal, where that could be read
                      "joining"  until it has learnt everything and is one again

Whoever has forgotten its votes, and entries that it had acknowledged, must not vote on: two leaders of one
term, or a leader without an acknowledged entry, could be the outcome. Once its removal is committed, no
candidate that still counts its vote can win (`MembershipChanges.leave`), and it is a newcomer like others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Final

import grpc
import structlog

from tarry.node.config import NodeConfig
from tarry.node.edge.forwarder import Forwarder
from tarry.node.edge.grpc_status import DETAILS_KEY, refusal_in
from tarry.node.edge.grpc_types import metadata_value
from tarry.proto import bearer_token
from tarry.proto import tarry_peer_pb2 as pb
from tarry.proto.files import make_folder, replace_file, sync_path
from tarry.replication.journal.records import JournalDamaged, Storage, read_head
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.snapshot.state_folder import NAME, POINTER

log = structlog.get_logger()

SERVICE: Final = "tarry.v1.MembershipService"
MARK: Final = "rejoining"
ASIDE: Final = "damaged"
LEAVE_S: Final = 10.0
JOIN_S: Final = 70.0
RETRY_S: Final = 1.0
U64_DIGITS: Final = 20
TELL_S: Final = 60.0
"""Between two log lines of a node that waits to be let go."""


class Phase(StrEnum):
    """Stages of a node's return."""

    LEAVING = "leaving"
    JOINING = "joining"


def phase(data: Path) -> Phase | None:
    """Return how far the node has come back; None: it is a node as any other.

    What was written there by anything else counts as the earlier phase.
    """
    mark = data / MARK
    if not mark.exists():
        return None
    return Phase.JOINING if mark.read_bytes() == Phase.JOINING.encode() else Phase.LEAVING


def set_aside(data: Path, node: str) -> Path:
    """Move a node's data away, durably, so that the next start comes back as a newcomer; return where to.

    Nothing of it may be open.
    """
    make_folder(data)
    leaving = _leaving(data) or _incarnation(data, node)
    _mark(data, Phase.LEAVING, leaving)  # first: without data and without the mark it would vote
    return move_aside(data, _left(data))


def move_aside(data: Path, paths: Iterable[Path]) -> Path:
    """Move parts of a node's data into a new folder ``damaged-<n>``, durably; return it."""
    numbers = (path.name.removeprefix(f"{ASIDE}-") for path in data.glob(f"{ASIDE}-*"))
    number = 1 + max((int(each) for each in numbers if each.isdecimal()), default=0)
    aside = data / f"{ASIDE}-{number}"  # who has looked at an earlier one may have removed it
    aside.mkdir()
    for path in paths:
        path.rename(aside / path.name)
    sync_path(aside)
    sync_path(data)
    return aside


def interrupted(data: Path) -> bool:
    """Return whether setting the data aside has not come to its end: nothing of it may be used."""
    return phase(data) is Phase.LEAVING and bool(_left(data))


def _left(data: Path) -> list[Path]:
    return sorted(
        path
        for path in data.iterdir()
        if path.name in {"journal", POINTER} or NAME.fullmatch(path.name) is not None
    )


def left(data: Path) -> None:
    """Mark durably that the others have agreed that this node is no member."""
    _mark(data, Phase.JOINING)


def joined(data: Path) -> None:
    """Remove the mark: the node is a member again."""
    (data / MARK).unlink()
    sync_path(data)


def _mark(data: Path, reached: Phase, incarnation: int = 0) -> None:
    replace_file(data / MARK, (f"{reached} {incarnation}" if incarnation else reached).encode())


def _leaving(data: Path) -> int:
    """Return the incarnation of the journal that leaves; 0: the mark does not tell it."""
    mark = data / MARK
    told = mark.read_bytes().removeprefix(b"leaving ") if mark.exists() else b""
    return int(told) if told.isdigit() and len(told) <= U64_DIGITS and int(told) < 1 << 64 else 0


def _incarnation(data: Path, node: str) -> int:
    """Return the incarnation with which a node leaves whose journal is there; 0: by its name."""
    journal = data / "journal"
    if not journal.exists():
        return 0
    try:
        with closing(WriteAheadLog(journal, cut=True)) as log:  # without a boot id: its mark stays
            return leaving_incarnation(log, node)
    except (JournalDamaged, OSError):
        return 0


def leaving_incarnation(journal: Storage, node: str) -> int:
    """Return the incarnation of a node's journal that may have been a member's; 0: it was none.

    It has nothing of the log, or a newcomer's has the state of one that began when another was the member.
    Such a one began on an emptied disk, and leaves for the one before, which is lost. Raises JournalDamaged.
    """
    head = read_head(journal)
    other = head.joined and head.members.incarnations.get(node, head.incarnation) != head.incarnation
    return head.incarnation if head.last_index > 1 and not other else 0


class Rejoining:
    """Asks the other nodes to remove this one and to add it again, for as long as it takes."""

    def __init__(self, config: NodeConfig, forwarder: Forwarder) -> None:
        self._config = config
        self._forwarder = forwarder
        self._metadata = bearer_token.metadata(config.peer_token)
        self._others = [address for node, address in config.members.items() if node != config.node]

    async def leave(self) -> None:
        """Return once this node is no member; its data may hold anything or nothing by now."""
        await self._until_let_go(_leaving(self._config.data))
        left(self._config.data)
        log.warning("left the cluster: comes back as a newcomer")

    async def leave_without_power(self) -> None:
        """Return once this node, whose machine lost its power, is no member, and its data is set aside.

        Not before: without a leader that is elected without it, its data may be the best that there is.
        """
        telling = asyncio.ensure_future(self._tell_of_power())
        try:
            await self._until_let_go(_incarnation(self._config.data, self._config.node))
        finally:
            telling.cancel()
        aside = set_aside(self._config.data, self._config.node)
        left(self._config.data)
        log.warning("left the cluster: comes back as a newcomer", aside=str(aside))

    async def _until_let_go(self, incarnation: int) -> None:
        config = self._config
        request = pb.LeaveRequest(cluster=config.cluster, node=config.node, incarnation=incarnation)
        await self._until_answered("Leave", request.SerializeToString(), LEAVE_S)

    async def _tell_of_power(self) -> None:
        while True:
            log.error(
                "the machine lost its power before everything was flushed: this node neither votes nor "
                "serves until a leader that was elected without it takes it in anew",
                journal=str(self._config.data / "journal"),
                instead="if a majority of the nodes says so, compare what each has, and go on with the one "
                "that has most, both by tarry node --recover-alone",
            )
            await asyncio.sleep(TELL_S)

    async def join(self, incarnation: int) -> None:
        """Return once this node, which must be running, is a member with its journal's incarnation."""
        config = self._config
        address = config.members.get(config.node, config.listen)
        request = pb.JoinRequest(
            cluster=config.cluster, node=config.node, address=address, incarnation=incarnation
        )
        await self._until_answered("Join", request.SerializeToString(), JOIN_S)
        joined(config.data)
        log.warning("a member again", address=address)

    async def _until_answered(self, method: str, raw: bytes, timeout_s: float) -> None:
        said, hint = dict[str, str](), None
        while True:  # the leader that the last of them names is asked next: it may be this node
            for address in self._others:
                problem, hint = await self._ask(method, hint or address, raw, timeout_s)
                if problem is None:
                    return
                if said.get(address) != problem:
                    said[address] = problem
                    log.warning("not yet", asked=method, peer=address, answer=problem)
            await asyncio.sleep(RETRY_S)

    async def _ask(
        self, method: str, address: str, raw: bytes, timeout_s: float
    ) -> tuple[str | None, str | None]:
        """Return why not (None: done), and the leader's address where it was given."""
        call = self._forwarder.channel(address).unary_unary(f"/{SERVICE}/{method}", None, None)
        try:
            await call(raw, metadata=self._metadata, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            details = metadata_value(error.trailing_metadata(), DETAILS_KEY)
            refusal = refusal_in(details) if isinstance(details, bytes) else None
            problem = f"{error.code().name}: {error.details()}"
            return problem, refusal.facts.get("leader") if refusal else None
        return None, None
