"""Levels: what the log and the state may hold, so that nodes of two versions can share them.

The cluster's level is replicated state. What needs a higher one is not proposed, and the level is raised once
every member can apply the next (`driver.level_raise`). Whatever a later version adds to the log or to the
files is in one of these tables.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from google.protobuf.message import Message

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.errors import ProposalRefused
from tarry.replication.state_machine.refusal import Refusal

FIRST: Final = 1
"""Of clusters of 0.1.0 and 0.2.0, and of every new one."""
HIGHEST: Final = 2
"""That this version can apply."""

OF_COMMANDS: Final[dict[type[Message], int]] = {
    log_pb.ScheduleCommand: 1,
    log_pb.ReleaseCommand: 1,
    log_pb.AckCommand: 1,
    log_pb.RetryCommand: 1,
    log_pb.CancelCommand: 1,
    log_pb.SubscribeCommand: 1,
    log_pb.TopicCommand: 1,
    log_pb.DeleteTopicCommand: 1,
    log_pb.DeleteGroupCommand: 1,
    log_pb.SeekCommand: 1,
    log_pb.TrimCommand: 1,
    log_pb.RaiseLevelCommand: 2,
    log_pb.GroupPolicyCommand: 2,
    log_pb.ClusterSettingsCommand: 2,
    log_pb.CancelReleasedCommand: 2,
    log_pb.RescheduleCommand: 2,
    log_pb.RecurringCommand: 2,
    log_pb.FireCommand: 2,
    log_pb.PrepareCommand: 2,
    log_pb.EndCommand: 2,
    log_pb.CheckCommand: 2,
}
OF_FIELDS: Final[dict[type[Message], dict[str, int]]] = {
    log_pb.TopicCommand: {"settings.group_policy": 2},
    log_pb.RetryCommand: {"dropped": 2},
    log_pb.ScheduleCommand: {"idempotent": 2},
}
"""By command: fields that came later than their command and change how it is applied, such as
"settings.retention_ms". Where such a field has its default, the command does not need the level."""
OF_FILES: Final = {
    "checkpoint/data.mdb": 1,
    "checkpoint/lock.mdb": 1,
    "hours/*/delay.log": 1,
    "hours/*/delay.index": 1,
    "hours/*/delay.index.thin": 2,  # it takes the other's name, which is of level 2 then: see THINNED
    "hours/*/slots": 1,
    "ready/*/*.ready": 1,
    "keys/manifest": 1,  # derived, like the runs: 0.2.0 leaves them alone, and a later start builds them anew
    "keys/*.run": 1,
}
"""Of a state folder: another format has another name. The checkpoint, which lists them, has a level too."""
INCARNATIONS: Final = 2
"""Of each cluster that went on from a backup, or alone: 0.2.0 would mix with the nodes of before."""
CANCELS_RELEASED: Final = 2
"""From which on a message is cancelled until it is handed over; below, only while it is pending."""
RESCHEDULES: Final = 2
"""From which on pending messages are rescheduled and updated."""
RECURS: Final = 2
"""From which on schedules recur."""
TRANSACTIONS: Final = 2
"""From which on messages are prepared, committed and rolled back."""
THINNED: Final = 2
"""From which on nodes thin hours: 0.2.0 would answer `Get` of what was thinned out with an empty message."""

LETTERS: Final = 2
"""From which on it is noted which dead-letter topics of other names a group's letters went to."""

CLUSTER_SETTINGS: Final = 2
"""From which on the cluster has settings, and a leader proposes what its configuration says of them."""

RETRIES_EXPIRE: Final = 2
"""From which on a trim opens lanes that wait for a retry which goes: 0.2.0 keeps them closed for good."""

RETRIES_REACH: Final = 2
"""From which on a retry for a deleted group is refused: 0.2.0 makes a queue that nobody consumes."""


class AnotherVersion(Exception):
    """The log or the state is another version's, and is not touched; the message says what to do."""


class LevelTooLow(ProposalRefused):
    """The command has not been and never will be applied: the cluster's level has none such yet."""

    def __init__(self, refused: Refusal) -> None:
        super().__init__(refused.text)
        self.refused = refused


def needed(command: Message) -> int:
    """Return the level from which on a command may be in the log."""
    kind = type(command)
    fields = OF_FIELDS.get(kind, {})
    return max([OF_COMMANDS[kind], *(level for name, level in fields.items() if _has(command, name))])


def _has(command: Message, name: str) -> bool:
    """Return whether a field of a command, such as "settings.pending_max", is there or has another value."""
    *parents, last = name.split(".")
    part: Any = attrgetter(".".join(parents))(command) if parents else command
    if part.DESCRIPTOR.fields_by_name[last].has_presence:
        return bool(part.HasField(last))
    return bool(getattr(part, last))


def refusal(command: Message, level: int) -> Refusal | None:
    """Return why a command may not be in the log at a level of the cluster; None: it may.

    The one that raises the level may, for its leader has heard every member.
    """
    least = needed(command)
    if least <= level or isinstance(command, log_pb.RaiseLevelCommand):
        return None
    return too_low(least, level)


def too_low(least: int, level: int) -> Refusal:
    """Return the refusal of what needs a level that the cluster does not have."""
    return Refusal(
        Reason.LEVEL_TOO_LOW,
        f"this needs level {least}, and the cluster has {level}: upgrade all nodes, see tarry upgrade status",
        {"level": str(level), "level_needed": str(least)},
    )


def checkpoint_version(level: int, *, far: bool) -> int:
    """Return the version in a checkpoint of a level: 1 is also read by 0.1.0, which knows no far log."""
    return level + 1 if far or level > FIRST else 1


def of_checkpoint(version: int) -> int:
    """Return the level of a checkpoint's version."""
    return max(FIRST, version - 1)


def demand(what: str, level: int, applies: int) -> None:
    """Raise AnotherVersion where something is of a higher level than a node can apply."""
    if level > applies:
        raise AnotherVersion(
            f"{what} is of level {level}, and this tarry applies {applies} at most: start the version "
            "that the other nodes run. Nothing has been changed"
        )
