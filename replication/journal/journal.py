"""The Raft log of one replica: entries, term, vote and commit index, in one storage.

Changes are staged in memory and written together, once per turn of the driver:

    add, delete, set term … ─► stage() ─► write(batch) in a thread ─► mark_durable(batch)

Nothing that rests on a change may leave the replica before `mark_durable`. Only a bounded tail of
entries stays in memory; older ones are read on demand, so a slice costs nothing until it is read.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from tarry.proto.tarry_peer_pb2 import LogPosition, MemberList
from tarry.replication.journal.records import (
    MEMBERSHIP,
    NO_OP_PAYLOAD,
    Batch,
    Entry,
    JournalDamaged,
    JournalMisused,
    Sizes,
    Staged,
    Storage,
    decode,
    encode,
    follows,
    mark,
    read_head,
    seal,
)
from tarry.replication.journal.tail import Tail
from tarry.replication.raft.guard import terms


class Journal:
    """The Raft log of one replica, with its term and vote; entries are named by their Raft index."""

    def __init__(
        self,
        storage: Storage,
        *,
        incarnation: int,
        tail_bytes_max: int = 16 << 20,
        tail_entries_max: int = 16_384,
    ) -> None:
        """Open what `storage` holds and check every record.

        `incarnation`: any random 64-bit number; used only where the storage is empty.
        Raises JournalDamaged.
        """
        self._storage = storage
        self._tail = Tail(tail_bytes_max, tail_entries_max)
        self._sizes = Sizes()
        self._staged = Staged(head=True)
        self._changes: dict[int, bytes] = {}  # membership payloads by index
        self._head = read_head(storage)
        self.empty = self._head.boot == 0
        """Whether there was no journal: this node is new, or has lost it."""
        if self._head.incarnation == 0:
            self._head.incarnation = incarnation
        self._head.boot += 1
        self._first, self._last = self._head.first_index, self._head.last_index
        self._last_chain = self._head.last_chain
        self._last_term = 0
        self._load()
        self._head.commit_index = min(self._head.commit_index, self._last)
        self._mend_term()
        self._spoken = self._who_has_spoken()
        self.durable_spoken = self._spoken
        """Durably so."""
        self.durable_index = self._last
        """Up to here entries are on the disk, or written and not flushed: then a kill leaves them."""
        self.flushed_index = self._last
        """Up to here no loss of power takes them back."""
        self._flushing_to = 0  # of the flush under way: of what came later it tells nothing
        self.durable_term = self._head.term

    # What it holds

    @property
    def incarnation(self) -> int:
        return self._head.incarnation

    @property
    def joined(self) -> bool:
        """True if it began as a newcomer's, not as a founder's."""
        return self._head.joined

    @property
    def cluster_incarnation(self) -> int:
        """Number drawn when the cluster was restored or recovered; 0: it never was."""
        return self._head.cluster_incarnation

    @property
    def boot(self) -> int:
        """Number of this opening, from 1; durable after the first write."""
        return self._head.boot

    @property
    def level(self) -> int:
        """The highest level that the cluster is known to have reached."""
        return max(1, self._head.level)

    @property
    def first_index(self) -> int:
        return self._first

    @property
    def last_index(self) -> int:
        """0: empty."""
        return self._last

    @property
    def last_term(self) -> int:
        return self._last_term

    @property
    def term(self) -> int:
        return self._head.term

    @property
    def voted_for(self) -> str | None:
        return self._head.voted_for or None

    @property
    def commit_index(self) -> int:
        """Never above what is durable here: a commit index may outlive entries only through a fault."""
        return max(1, min(self._head.commit_index, self.durable_index))

    @property
    def members(self) -> MemberList | None:
        """Members as of `first_index`, to be read only; None: never told."""
        return self._head.members if self._head.HasField("members") else None

    @property
    def spoken(self) -> Set[str]:
        """Nodes that this one has let in, ever."""
        return self._spoken

    @property
    def membership_changes(self) -> Sequence[tuple[int, bytes]]:
        """(index, payload) of the membership entries in the log, in order, committed or not."""
        return sorted(self._changes.items())

    def entry(self, index: int) -> Entry:
        """Return an entry. Raises IndexError outside first_index … last_index, JournalDamaged."""
        return self._find(index)[0]

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry; None: not in the journal."""
        return self.entry(index)[2] if self._first <= index <= self._last else None

    def chain_at(self, index: int) -> int:
        """Return a hash over all entries up to `index`: two replicas' are equal only if their logs are."""
        return self._find(index)[1]

    # Changes

    def append(self, payload: bytes, index: int, term: int) -> None:
        if self._last and index != self._last + 1:
            raise JournalMisused(f"entry {index} after {self._last}")
        self._staged.puts[index], chain = encode(payload, index, term, self._last_chain)
        if payload[0] == MEMBERSHIP:  # on it rests whose disks are a majority: it is never deferred
            self._staged.head = True
        if not self._last:
            self._first = index
        self._take_in((payload, index, term), chain)

    def delete_from(self, index: int) -> None:
        """Remove the entries from `index` on, none of which may be committed."""
        if index <= max(self._head.commit_index, self._first):
            raise JournalMisused(f"deletes from {index}; committed {self._head.commit_index}")
        before = index - 1
        self._last_chain, self._last_term = self.chain_at(before), self.entry(before)[2]
        self._sizes.cut(index - self._first)
        for gone in range(index, self._last + 1):
            self._tail.forget(gone)
            self._staged.puts.pop(gone, None)
            self._changes.pop(gone, None)
        if index <= self.durable_index:
            staged = self._staged.delete_from
            self._staged.delete_from = index if staged is None else min(staged, index)
            self.durable_index = before
            self.flushed_index = min(self.flushed_index, before)
            self._flushing_to = min(self._flushing_to, before)
        self._last = before
        self._staged.head = True

    def start_retaining(self, index: int, bytes_max: int) -> int:
        """Return where the journal may start if it keeps `index`, and before it no more than `bytes_max`.

        Of payloads, and of storage, where what is stored beside small payloads is more than they.
        """
        of_payloads = self._sizes.start_retaining(self._first, index, bytes_max)
        return max(of_payloads, min(index, self._storage.first_within(bytes_max)))

    def compact(self, index: int, members: MemberList) -> None:
        """Move the start to `index` (at most the last but one), copying nothing; `members` as of there."""
        first = min(index, self._last - 1)
        if first <= self._first:
            return
        if first > self._head.commit_index:
            raise JournalMisused(f"compacts to {first}; committed {self._head.commit_index}")
        self._drop_below(first)
        self._head.members.CopyFrom(members)

    def prepare_reset(self, position: LogPosition) -> None:
        """Note that a state at `position` is about to replace this replica's; `reset` follows."""
        if position.index <= self._head.commit_index:
            raise JournalMisused(f"resets to {position.index}; committed {self._head.commit_index}")
        self._head.installing.CopyFrom(position)
        self._staged.head = True

    @property
    def installing(self) -> LogPosition | None:
        """Position that `reset` was going to when the process ended."""
        return self._head.installing if self._head.HasField("installing") else None

    def abandon_reset(self) -> None:
        self._head.ClearField("installing")
        self._staged.head = True

    def reset(self) -> None:
        """Let the log go on from the snapshot that was installed.

        Term and vote stay, unless the snapshot's last entry is of a higher term.

        Where the log contains the snapshot's last entry, what follows it stays too, for it may have been
        acknowledged to a leader (Raft §7). Else only a mark is left: it is neither sent nor applied.
        """
        position = LogPosition.FromString(self._head.installing.SerializeToString())
        self.abandon_reset()
        self._head.boot += 1  # nothing said before may be taken as said after
        if self.term_at(position.index) == position.term and position.index > self._first:
            self._head.commit_index = position.index
            self._drop_below(position.index)
        else:
            self._start_at(position)
        self._head.members.CopyFrom(position.members)
        if position.term > self._head.term:
            self.set_term(position.term, None)

    def set_members(self, members: MemberList) -> None:
        """Set the members as of `first_index`: a cluster's founders, or those that a leader tells."""
        self._head.members.CopyFrom(members)
        self._staged.head = True

    def join(self) -> None:
        """Mark the journal as a newcomer's."""
        self._head.joined = self._staged.head = True

    def begin_cluster(self, incarnation: int) -> None:
        """Make it a journal of another incarnation of the cluster."""
        self._head.cluster_incarnation, self._staged.head = incarnation, True

    def note_spoken(self, node: str) -> None:
        if node not in self._spoken:
            self._spoken |= {node}
            self._head.spoken.nodes.append(node)
            self._staged.head = True

    def note_level(self, level: int) -> None:
        """Note that the cluster has reached a level: what cannot apply it starts with it no more."""
        self._head.level = level
        self._staged.head = True

    def set_term(self, term: int, voted_for: str | None) -> None:
        if term < self._head.term:
            raise JournalMisused(f"term {term} after {self._head.term}")
        self._head.term, self._head.voted_for = term, voted_for or ""
        self._staged.head = True

    def set_commit_index(self, index: int) -> None:
        """Raise the commit index; it is written with the next change, for Raft can always learn it anew."""
        self._head.commit_index = max(self._head.commit_index, index)

    # Durability

    def demand_flush(self) -> None:
        """Let the next batch not be deferred: with it all before it is flushed, too."""
        self._staged.head = True

    @property
    def may_defer(self) -> bool:
        """True if the storage would notice a loss of power between a write and its flush."""
        return self._storage.may_defer

    @property
    def is_marked(self) -> bool:
        """True if a loss of power now would be taken for one that has taken something back."""
        return self._storage.is_marked

    def stage(self, *, defer: bool = False) -> Batch | None:
        """Return the changes since the last call; None: nothing that needs a write.

        `defer`: entries alone may be flushed later; a term, a vote, or a deletion never is.
        """
        staged, self._staged = self._staged, Staged()
        if not staged.any():
            return None
        head = self._head
        head.first_index, head.last_index, head.last_chain = self._first, self._last, self._last_chain
        return Batch(
            staged.delete_from,
            list(staged.puts.items()),
            staged.delete_below,
            seal(head.SerializeToString(deterministic=True)),
            self._last,
            head.term,
            self._spoken,
            defer and staged.may_wait and self._storage.may_defer,
        )

    def write(self, batch: Batch) -> None:
        """Write a batch, blocking until it is durable, or written where it is deferred.

        May run in a thread while the journal is read, not while it is written.
        """
        self._storage.write(batch)

    def is_long(self, batch: Batch) -> bool:
        """Return whether writing a batch takes long, however quick the disk is."""
        return self._storage.is_long(batch)

    def needs_upkeep(self) -> bool:
        """Return whether `upkeep` has something to do."""
        return self._storage.needs_upkeep()

    def upkeep(self) -> None:
        """Do what makes later writes short. Blocks, and may run in a thread beside a write."""
        self._storage.upkeep()

    def flush(self) -> None:
        """Make durable what was written before. Blocks, and may run in a thread beside a write."""
        self._storage.flush()

    def settle(self) -> None:
        """Note on the disk that nothing waits for a flush, if nothing does; as `flush`."""
        self._storage.settle()

    def begin_flush(self) -> None:
        """Note that a flush begins: `mark_flushed` follows once it has ended."""
        self._flushing_to = self.durable_index

    def mark_flushed(self) -> None:
        """Note that the flush has ended that has begun; what others have replaced since, it has not seen."""
        self.flushed_index = max(self.flushed_index, self._flushing_to)

    def mark_durable(self, batch: Batch) -> None:
        self.durable_index, self.durable_term = batch.last_index, batch.term
        if not batch.deferred:
            self.flushed_index = batch.last_index
        self.durable_spoken = batch.spoken
        self._tail.trim(min(self._last, self.durable_index))

    def close(self) -> None:
        self._storage.close()

    # Inside

    def _load(self) -> None:
        chain, end = None, self._head.last_index
        self._last = 0
        for index, value in self._storage.scan(self._first):
            if index > end:  # LMDB may have them, of a write that never ended: its head would say so
                self._staged.delete_from = end + 1
                break
            entry, stored = decode(index, value)
            if chain is not None:
                if not follows(entry, stored, chain):
                    raise JournalDamaged(f"entry {index} does not follow the one before it")
            elif index != self._first:
                raise JournalDamaged(f"starts at {index} instead of {self._first}")
            chain = stored
            self._take_in(entry, stored)
            self._tail.trim(self._last)
        if end and (self._last, chain) != (end, self._head.last_chain):
            raise JournalDamaged(f"ends at {self._last} instead of {end}")

    def _who_has_spoken(self) -> Set[str]:
        """Return the nodes that have spoken, as the head says; all that may have, where it does not."""
        spoken = self._head.spoken.nodes
        if not self.empty and not self._head.HasField("spoken"):
            spoken.extend(sorted(self._head.members.addresses))
        return frozenset(spoken)

    def _mend_term(self) -> None:
        if terms.is_plausible(max(self._head.term, self._last_term), 0):
            return
        term = terms.mended(self._last_term)
        if term is None:
            raise JournalDamaged(f"it has entries of term {self._last_term}, which no election leads to")
        self._head.term, self._head.voted_for = term, ""

    def _find(self, index: int) -> tuple[Entry, int]:
        held = self._tail.get(index)
        if held is not None:
            return held
        if not self._first <= index <= self._last:
            raise IndexError(index)
        value = self._storage.read(index)
        if value is None:
            raise JournalDamaged(f"entry {index} is missing")
        return decode(index, value)

    def _take_in(self, entry: Entry, chain: int) -> None:
        payload, index, term = entry
        self._tail.put(entry, chain)
        self._sizes.push(len(payload))
        if payload[0] == MEMBERSHIP:
            self._changes[index] = payload
        self._last, self._last_term, self._last_chain = index, term, chain

    def _start_at(self, position: LogPosition) -> None:
        index, term, chain = position.index, position.term, position.chain
        self._tail.clear()
        self._changes.clear()
        self.durable_index = self.flushed_index = self._flushing_to = 0
        self._staged = Staged(delete_from=0, puts={index: mark(term, chain)}, head=True)
        self._first = index
        self._sizes = Sizes()
        self._take_in((NO_OP_PAYLOAD, index, term), chain)
        self._head.commit_index = index

    def _drop_below(self, first: int) -> None:
        self._sizes.drop(first - self._first)
        self._tail.forget_below(first)
        for gone in [index for index in self._staged.puts if index < first]:
            del self._staged.puts[gone]
        for gone in [index for index in self._changes if index < first]:
            del self._changes[gone]
        self._first = self._staged.delete_below = first
        self._staged.head = True
