"""Conditions under which a command can be applied at all; every replica refuses the same ones.

The checks of the API stand before the log (node/services); these catch what a leader's bug would put into it,
which must not end every replica, again at each start.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import cluster_settings, group_policies, levels, recurring, transactions
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX
from tarry.wheel.id_gaps import GAP_MAX, GAP_MIN

WIDTHS: Final[dict[type[Message], dict[str, int]]] = {
    log_pb.ScheduleCommand: {"due_ms": 8, "lane": 4},
    log_pb.ReleaseCommand: {"hour": 4, "global_index": 4},
    log_pb.AckCommand: {"offset": 8},
    log_pb.RetryCommand: {"offset": 8, "due_ms": 8, "tag_mask": 8, "lane": 4},
    log_pb.CancelCommand: {"hour": 4, "global_index": 4},
    log_pb.CancelReleasedCommand: {"offset": 8, "hour": 4, "global_index": 4, "due_ms": 8},
    log_pb.RescheduleCommand: {
        "hour": 4,
        "global_index": 4,
        "place_hour": 4,
        "place_index": 4,
        "due_ms": 8,
        "if_due_ms": 8,
        "tag_mask": 8,
    },
    log_pb.CheckCommand: {"offset": 8, "hour": 4, "global_index": 4},
    log_pb.TrimCommand: {"queue": 4, "offset": 8, "hour": 4, "units": 8},
}
"""Bytes of a value of each column."""
COLUMNS_OF_REQUEST: Final = {"topic": 4, "due_ms": 8, "tag_mask": 8}


def refusal(command: Any) -> Refusal | None:
    """Return why a command cannot be applied, whatever the state is; None where the state decides."""
    kind = type(command)
    if not 0 <= command.now_ms <= DUE_MS_MAX:
        return Refusal(Reason.DUE_INVALID, f"now_ms {command.now_ms} is no time that a cluster has")
    if kind is log_pb.ReleaseCommand and not 0 <= command.until_ms <= DUE_MS_MAX:
        return Refusal(Reason.DUE_INVALID, f"nothing can be due at {command.until_ms}")
    if kind in (log_pb.SubscribeCommand, log_pb.DeleteGroupCommand) and not command.group:
        return Refusal(Reason.GROUP_INVALID, "the group is empty")
    if kind is log_pb.RecurringCommand and (text := recurring.fault(command)):
        return Refusal(Reason.RECURRING_INVALID, text)
    if kind in (log_pb.PrepareCommand, log_pb.EndCommand) and (text := transactions.fault(command)):
        return Refusal(Reason.TRANSACTION_INVALID, text)
    if text := _setting_fault(command):
        return Refusal(Reason.SETTING_INVALID, text)
    for name, width in WIDTHS.get(kind, {}).items():
        if len(getattr(command, name)) % width:
            return _cut(name)
    if kind is log_pb.ScheduleCommand:
        for name, width in COLUMNS_OF_REQUEST.items():
            if len(getattr(command.request, name)) % width:
                return _cut(name)
    return None


def _gap_fault(command: Any) -> str:
    if not GAP_MIN <= command.id_gap < GAP_MAX:
        return f"an id gap of {command.id_gap} is none with which an incarnation begins"
    return "" if command.level >= levels.INCARNATIONS else "an incarnation does not begin at that level"


def _setting_fault(command: Any) -> str:
    match command:
        case log_pb.GroupPolicyCommand():
            return group_policies.fault(command.policy, command.unset, command.topic)
        case log_pb.ClusterSettingsCommand():
            return cluster_settings.fault(command.settings, command.unset)
        case log_pb.TopicCommand():
            return group_policies.fault(command.settings.group_policy, topic=command.topic)
        case log_pb.RaiseLevelCommand() if command.id_gap:
            return _gap_fault(command)
        case _:
            return ""


def _cut(name: str) -> Refusal:
    return Refusal(Reason.COLUMNS_DIFFER, f"the column {name} ends within a value")
