"""Begin of another incarnation of the cluster, in the journal of its one member."""

from __future__ import annotations

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import entry_payload
from tarry.replication.state_machine import commands as command_codec
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.schedule import DUE_MS_MAX
from tarry.wheel.id_gaps import gap_of


def begin(journal: Journal, incarnation: int, now_ms: int) -> None:
    """Write, at once or not at all, what is staged, and that it is a journal of another incarnation.

    Its last entry raises the level to one from which on a version knows of incarnations, and begins an id
    gap: no message that is scheduled from now on gets an id that may have been given before. All of it is
    committed: this node, the only member, is a majority. Blocks.
    """
    now_ms = min(max(now_ms, 0), DUE_MS_MAX)  # an entry may have told a time for which it was refused
    raised = command_codec.encode(
        log_pb.RaiseLevelCommand(level=levels.INCARNATIONS, now_ms=now_ms, id_gap=gap_of(incarnation))
    )
    entry = log_pb.LogEntry(commands=[raised])
    journal.append(entry_payload(entry.SerializeToString()), journal.last_index + 1, journal.term)
    journal.begin_cluster(incarnation)
    journal.set_commit_index(journal.last_index)
    batch = journal.stage()
    assert batch is not None
    journal.write(batch)
    journal.mark_durable(batch)
    journal.settle()
