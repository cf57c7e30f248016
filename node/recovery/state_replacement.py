"""Replacement of a damaged state by a peer's, while journal, term and vote stay.

    data/state-damaged   the state in use is damaged: nothing runs here before another has taken its place
    data/damaged-1/      the damaged state, for inspection; no further one is kept

Raft votes and acknowledges by the journal alone, which is whole, so the node stays a member. It is silent
until the peer's state is installed, and then applies its journal from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final

import grpc
import structlog

from tarry.node.config import NodeConfig
from tarry.node.edge.forwarder import Forwarder
from tarry.node.recovery.rejoin import ASIDE, RETRY_S, move_aside
from tarry.proto import bearer_token
from tarry.proto.files import sync_path
from tarry.proto.tarry_peer_pb2 import FetchSnapshotRequest, FetchSnapshotResponse, LogPosition, SnapshotFile
from tarry.replication.blocking import in_thread
from tarry.replication.cluster_name import full_name
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_takeover import open_log
from tarry.replication.journal.power_loss import boot_id
from tarry.replication.raft.guard.terms import is_plausible
from tarry.replication.raft.membership import Membership
from tarry.replication.snapshot.state_damage import StateDamage
from tarry.replication.snapshot.state_files import StateSink
from tarry.replication.snapshot.state_folder import StateFolder
from tarry.replication.snapshot.transfer import SnapshotFailed, fetch
from tarry.replication.state_machine import levels
from tarry.replication.transport.peer_service import SERVICE

log = structlog.get_logger()

MARK: Final = "state-damaged"
INSTEAD: Final = f"stop the node and remove the file {MARK}: it then starts with the state as it is"


def is_marked(data: Path) -> bool:
    """Return whether the state in a data folder is to be replaced before anything uses it."""
    return (data / MARK).exists()


def mark(data: Path) -> None:
    """Note durably that the state is to be replaced."""
    (data / MARK).touch()
    sync_path(data)


class StateReplacement:
    """Takes a state from a peer, for as long as it takes; no part of the node runs beside it."""

    def __init__(self, config: NodeConfig, forwarder: Forwarder) -> None:
        self._config = config
        self._forwarder = forwarder
        self._cluster = config.cluster
        self._metadata = bearer_token.metadata(config.peer_token)

    async def run(self) -> None:
        """Return once the state is replaced; at once where there is no journal that needs one.

        Raises JournalDamaged, PointerDamaged, AnotherVersion, OSError.
        """
        config = self._config
        folder = StateFolder(config.data)
        storage = open_log(config.data / "journal", boot=boot_id(config.boot_id_file))
        try:
            journal = Journal(storage, incarnation=1)
            self._cluster = full_name(config.cluster, journal.cluster_incarnation)
            levels.demand(f"the journal in {config.data}", journal.level, levels.HIGHEST)
            if not journal.empty:
                await self._take_from_any(folder, journal)
        finally:
            storage.close()
        (config.data / MARK).unlink()
        sync_path(config.data)

    async def _take_from_any(self, folder: StateFolder, journal: Journal) -> None:
        for peer, address in cycle(peers_of(self._config, journal).items()):
            try:
                await self._take(folder, journal, address)
            except SnapshotFailed as failed:
                log.warning("no state from this peer yet", peer=peer, answer=str(failed), instead=INSTEAD)
                await asyncio.sleep(RETRY_S)
            else:
                log.warning("state taken from a peer: the journal is applied from there", peer=peer)
                return

    async def _take(self, folder: StateFolder, journal: Journal, address: str) -> None:
        """Replace the state. Raises SnapshotFailed, and then nothing has changed."""
        sink = StateSink(None, folder, on_damage=_refused)
        position = await fetch(partial(self._ask, address), sink, in_thread)
        if is_ahead(journal, position):
            journal.prepare_reset(position)  # the driver's start finishes it
            _write(journal)
        damaged = folder.path
        await in_thread(sink.install)
        await in_thread(partial(put_away, folder, damaged))

    async def _ask(self, address: str, kept: Sequence[SnapshotFile]) -> AsyncIterator[FetchSnapshotResponse]:
        request = FetchSnapshotRequest(
            cluster=self._cluster, node=self._config.node, kept=kept, level=levels.HIGHEST
        )
        ask = self._forwarder.channel(address).unary_stream(
            f"/{SERVICE}/FetchSnapshot",
            FetchSnapshotRequest.SerializeToString,
            FetchSnapshotResponse.FromString,
        )
        try:
            async for part in ask(request, metadata=self._metadata):
                yield part
        except grpc.aio.AioRpcError as error:
            raise SnapshotFailed(f"{error.code().name}: {error.details()}") from error


def peers_of(config: NodeConfig, journal: Journal) -> dict[str, str]:
    """Return the addresses of the other members by node, as the journal names them."""
    members = Membership(journal, config.members).current()
    return {node: address for node, address in members.items() if node != config.node}


def put_away(folder: StateFolder, damaged: Path) -> None:
    """Keep the first damaged state for inspection; remove any later one. Blocks.

    A disk that damages each state would otherwise be full of them.
    """
    if any(damaged.parent.glob(f"{ASIDE}-*")):
        folder.remove_others()
    else:
        move_aside(damaged.parent, [damaged])


def is_ahead(journal: Journal, position: LogPosition) -> bool:
    """Return whether the state has more than is known to be committed here: the journal goes on from it.

    Raises SnapshotFailed where the journal cannot be applied to the state.
    """
    index = position.index
    if index > journal.commit_index:
        if not is_plausible(position.term, journal.term):
            raise SnapshotFailed(f"its state is of term {position.term}, which no election leads to")
        if journal.term_at(index) == position.term and journal.chain_at(index) != position.chain:
            raise SnapshotFailed(f"its state is of another log than the journal here, at {index}")
        return True
    if index < journal.first_index:
        raise SnapshotFailed(
            f"its state ends at {index}, and the journal here begins at {journal.first_index}"
        )
    if (journal.term_at(index), journal.chain_at(index)) != (position.term, position.chain):
        raise SnapshotFailed(f"its state is of another log than the journal here, up to {index}")
    return False


def _write(journal: Journal) -> None:
    """Make the journal's changes durable. Blocks: a thread could still write when the storage is closed."""
    batch = journal.stage()
    if batch is not None:
        journal.write(batch)
        journal.mark_durable(batch)


def _refused(damage: StateDamage) -> None:
    log.error("state refused", damage=str(damage))
