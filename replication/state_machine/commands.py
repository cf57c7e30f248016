"""Commands: what the log holds, an opcode byte and a protobuf payload.

A command is decided by the leader and applied by every replica. Times and
everything read from outside come inside it, so that applying is deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from google.protobuf.message import DecodeError, Message

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.levels import AnotherVersion


class Opcode(IntEnum):
    """First byte of a command; the numbers are for ever."""

    SCHEDULE = 1
    RELEASE = 2
    ACK = 3
    RETRY = 4
    CANCEL = 5
    SUBSCRIBE = 6
    TOPIC = 7
    DELETE_TOPIC = 8
    DELETE_GROUP = 9
    SEEK = 10
    TRIM = 11
    RAISE_LEVEL = 12
    GROUP_POLICY = 13
    CANCEL_RELEASED = 15
    CLUSTER_SETTINGS = 16
    RESCHEDULE = 17
    RECURRING = 18
    FIRE = 19
    PREPARE = 20
    END = 21
    CHECK = 22


PAYLOADS: Final[dict[Opcode, type[Message]]] = {
    Opcode.SCHEDULE: log_pb.ScheduleCommand,
    Opcode.RELEASE: log_pb.ReleaseCommand,
    Opcode.ACK: log_pb.AckCommand,
    Opcode.RETRY: log_pb.RetryCommand,
    Opcode.CANCEL: log_pb.CancelCommand,
    Opcode.SUBSCRIBE: log_pb.SubscribeCommand,
    Opcode.TOPIC: log_pb.TopicCommand,
    Opcode.DELETE_TOPIC: log_pb.DeleteTopicCommand,
    Opcode.DELETE_GROUP: log_pb.DeleteGroupCommand,
    Opcode.SEEK: log_pb.SeekCommand,
    Opcode.TRIM: log_pb.TrimCommand,
    Opcode.RAISE_LEVEL: log_pb.RaiseLevelCommand,
    Opcode.GROUP_POLICY: log_pb.GroupPolicyCommand,
    Opcode.CANCEL_RELEASED: log_pb.CancelReleasedCommand,
    Opcode.CLUSTER_SETTINGS: log_pb.ClusterSettingsCommand,
    Opcode.RESCHEDULE: log_pb.RescheduleCommand,
    Opcode.RECURRING: log_pb.RecurringCommand,
    Opcode.FIRE: log_pb.FireCommand,
    Opcode.PREPARE: log_pb.PrepareCommand,
    Opcode.END: log_pb.EndCommand,
    Opcode.CHECK: log_pb.CheckCommand,
}
OPCODE_OF: Final = {payload: opcode for opcode, payload in PAYLOADS.items()}
_LEVELS: Final = {bytes((opcode,)): levels.OF_COMMANDS[payload] for opcode, payload in PAYLOADS.items()}
_RAISE: Final = bytes((Opcode.RAISE_LEVEL,))


def encode(payload: Message) -> bytes:
    """Return the command's bytes: opcode, then the payload."""
    return bytes((OPCODE_OF[type(payload)],)) + payload.SerializeToString()


def decode(command: bytes) -> Message:
    """Return the payload. Raises AnotherVersion: to skip what others apply would make another state."""
    try:
        return PAYLOADS[Opcode(command[0])].FromString(command[1:])
    except (IndexError, ValueError, DecodeError) as error:
        raise _unknown(command) from error


def demand_applicable(commands: Sequence[bytes], applies: int) -> None:
    """Raise AnotherVersion where one of an entry's commands is above a level: before any is applied."""
    kinds_there = {command[:1] for command in commands}
    for kind in sorted(kinds_there):
        if _LEVELS.get(kind, applies + 1) > applies:
            raise _unknown(kind)
    if _RAISE in kinds_there:
        raises = (decode(command) for command in commands if command[:1] == _RAISE)
        highest = max(raised.level for raised in raises if isinstance(raised, log_pb.RaiseLevelCommand))
        levels.demand("the log from here on", highest, applies)


def _unknown(command: bytes) -> AnotherVersion:
    return AnotherVersion(
        f"the log has a command that this version does not know ({command[:1].hex() or 'empty'}): "
        "upgrade this node to the version that the other nodes run"
    )


_NAMES: Final = {bytes((opcode,)): opcode.name.lower() for opcode in Opcode}


def kinds(commands: Sequence[bytes]) -> str:
    """Return what an entry has, by name: the kind of its commands."""
    first = {command[:1] for command in commands}
    if len(first) != 1:
        return "mixed" if first else "nothing"
    return _NAMES.get(first.pop(), "unknown")


def is_schedule(command: bytes) -> bool:
    """Return whether a command schedules: neighbours in an entry that do are applied together."""
    return command[:1] == bytes((Opcode.SCHEDULE,))
