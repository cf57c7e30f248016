"""pysyncobj with its transport, timers and applying replaced: the only file that imports it.

Kept of it: terms, votes, log matching, commit, sending of entries. Not used: its sockets, threads, pickles,
files, dumps, code versions, method registry, and its applying of commands. Everything it would send comes
out through `on_send`; everything that it would do by itself is switched off or overridden below, each with
its reason. The rules that make it safe are in guard/ and are applied in consensus.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pysyncobj.syncobj
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from tarry.proto.tarry_peer_pb2 import MembershipChange
from tarry.replication.clock import Clock
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import MEMBERSHIP
from tarry.replication.raft.guard import engine_audit
from tarry.replication.raft.journal_view import JournalView, LazySlice
from tarry.replication.settings import ReplicationSettings

pysyncobj.syncobj.createJournal = lambda journal: journal  # the configuration carries ours


class Member(Node):  # type: ignore[misc]
    """A node as the engine knows it. Its hash is fixed, since the engine iterates over sets of nodes."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self._hash = zlib.crc32(node.encode())

    def __hash__(self) -> int:
        return self._hash


@cache
def member(node: str) -> Member:
    """Return the one object of a name: the engine's sets and mappings then find it by identity."""
    return Member(node)


class Seam(Transport):  # type: ignore[misc]
    """The engine's transport: always ready, connects nobody, passes each message to a callback."""

    ready = True

    def __init__(self, on_send: Callable[[str, dict[str, Any]], None]) -> None:
        super().__init__(None, None, [])
        self._on_send = on_send

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        self._on_send(node.id, message)
        return True

    def tryGetReady(self) -> None:  # noqa: N802
        """Do nothing: it is always ready."""

    def addNode(self, node: Node) -> None:  # noqa: N802
        """Do nothing: members come from the journal."""

    def dropNode(self, node: Node) -> None:  # noqa: N802
        """Do nothing: members come from the journal."""

    def destroy(self) -> None:
        """Do nothing: there is nothing to free."""


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """Do nothing: there are no sockets to poll."""


class _NoDumps:
    """Stand-in for the engine's snapshots, which are never made: consensus asks for those of our own."""

    def getTransmissionData(self, transmission: object) -> None:  # noqa: N802
        return None

    def cancelTransmisstion(self, transmission: object) -> None:  # noqa: N802
        return None


class GuardedSyncObj(SyncObj):  # type: ignore[misc]
    def __init__(
        self,
        node: str,
        others: Sequence[str],
        journal: Journal,
        conf: SyncObjConf,
        seam: Seam,
        timeout: Callable[[], float],
        now: float,
        append_bytes: int,
    ) -> None:
        self.timeout = timeout
        self._journal = journal
        self._append_bytes = append_bytes
        self.now = now
        self.may_campaign = False
        self.change_index = 0  # of the latest membership entry in the log
        super().__init__(member(node), [member(other) for other in others], conf, transport=seam)
        self._poller = _NoPoller()
        self._SyncObj__serializer = _NoDumps()
        self.voters = self._voters()
        """Names of the other members that vote."""

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        """Return a timeout from the injected source of randomness."""
        return self.timeout()

    def _SyncObj__getEntries(  # noqa: N802
        self,
        fromIDx: int,  # noqa: N803
        count: int | None = None,
        maxSizeBytes: int | None = None,  # noqa: N803
    ) -> Sequence[Any]:
        """Return entries without a look at any other; those of one append, which is small, as a list.

        By the answers to appends the window is set. The engine's own limit is also the size from which it
        would pickle an entry, so it exceeds all.
        """
        journal = self._journal
        if fromIDx is None or fromIDx < journal.first_index:
            return ()
        end = journal.last_index + 1
        found = LazySlice(journal, fromIDx, max(fromIDx, end if count is None else min(end, fromIDx + count)))
        if maxSizeBytes is None:
            return found
        entries, room_bytes = [], min(maxSizeBytes, self._append_bytes)
        for entry in found:
            entries.append(entry)
            room_bytes -= len(entry[0])
            if room_bytes <= 0:
                break
        return entries

    def _SyncObj__getCurrentLogIndex(self) -> int:  # noqa: N802
        return self._journal.last_index

    def _SyncObj__getCurrentLogTerm(self) -> int:  # noqa: N802
        return self._journal.last_term

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """Return whether it may campaign: the pre-vote decides, not the sockets."""
        return self.may_campaign

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Do nothing: a tick finds no command, for `log_command` takes each in at once."""

    def log_command(self, command: bytes) -> None:
        """Log one command now, however long the process pauses meanwhile.

        The engine takes commands from its queue for one append period; one that stayed there would be
        logged with the next.
        """
        now = self.now
        pysyncobj.syncobj.monotonicTime = lambda: now
        self._applyCommand(command, None)
        super()._checkCommandsToApply()

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Do nothing: the driver applies entries, within a budget, outside of the tick."""
        return False

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Do nothing: the state machine decides when the journal's start moves."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        raise AssertionError("there are no dumps")

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802
        raise AssertionError("the engine applies nothing")

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> tuple[str, str, Node] | None:  # noqa: N802
        """Decode a membership change from our own encoding: nothing is ever unpickled."""
        if command[0] != MEMBERSHIP:
            return None
        change = MembershipChange.FromString(command[1:])
        return "rem" if change.remove else "add", change.node, member(change.node)

    def _SyncObj__changeCluster(self, request: tuple[str, str, Node]) -> bool:  # noqa: N802
        """Allow one change at a time: the engine checks the running one's index but never sets it."""
        if self._SyncObj__raftLastApplied < self.change_index:
            return False
        changed: bool = super()._SyncObj__changeCluster(request)
        if changed:
            self.change_index = self._SyncObj__getCurrentLogIndex() + 1
        return changed

    def _SyncObj__doChangeCluster(self, request: tuple[str, str, Node], reverse: bool = False) -> bool:  # noqa: N802
        """Keep a learner's match and next index when it becomes a member."""
        node = request[2]
        match, following = self._SyncObj__raftMatchIndex.get(node), self._SyncObj__raftNextIndex.get(node)
        changed: bool = super()._SyncObj__doChangeCluster(request, reverse)
        if changed and node in self._SyncObj__otherNodes and match is not None:
            self._SyncObj__raftMatchIndex[node], self._SyncObj__raftNextIndex[node] = match, following
        self._SyncObj__readonlyNodes.discard(node)
        self.voters = self._voters()
        return changed

    def _voters(self) -> frozenset[str]:
        return frozenset(node.id for node in self._SyncObj__otherNodes)

    def change_cluster(self, payload: bytes) -> None:
        request = self._SyncObj__parseChangeClusterRequest(payload)
        if request is not None:
            self._SyncObj__doChangeCluster(request)

    def _SyncObj__setState(self, state: int) -> None:  # noqa: N802
        """Give a leader that steps down a new election timeout before it may campaign."""
        if self._SyncObj__raftState == 2 and state != 2:
            self._SyncObj__raftElectionDeadline = self.now + self.timeout()
        super()._SyncObj__setState(state)


def set_time(clock: Clock) -> None:
    """Set the global from which the engine reads time; before each call, as engines may share a process."""
    pysyncobj.syncobj.monotonicTime = clock.monotonic_s


def check_source() -> None:
    """Raise engine_audit.NotAudited unless the installed engine is the audited one."""
    engine_audit.check(Path(pysyncobj.syncobj.__file__).parent)


def configuration(settings: ReplicationSettings, journal: Journal) -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=True,
        appendEntriesPeriod=settings.heartbeat_ms / 1000,
        appendEntriesBatchSizeBytes=settings.append_bytes_max,
        raftMinTimeout=settings.election_min_ms / 1000,
        raftMaxTimeout=settings.election_max_ms / 1000,
        leaderFallbackTimeout=settings.fallback_ms / 1000,
        connectionTimeout=max(3.5, settings.election_max_ms / 1000),
        commandsWaitLeader=False,
        useFork=False,
        fullDumpFile=None,
        logCompactionMinEntries=10**9,
        dynamicMembershipChange=True,
        journalFile=JournalView(journal),
    )
