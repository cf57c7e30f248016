"""The cluster's settings, for topics and groups that say nothing else: what may be in the log, what is kept.

The first leader of level 2 seeds them once with what its configuration says, so an upgrade loses nothing that
an operator had written there; from then on no file counts, and a failover changes nothing. Applying only
keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import DURABILITY_ASYNC, DURABILITY_SYNC
from tarry.proto.tarry_operator_pb2 import ClusterSettings
from tarry.replication.state_machine import group_policies

TIME_MS_MAX: Final = group_policies.WAIT_MS_MAX
DELAY_LEVELS_MAX: Final = 1_000
FLUSH_MS: Final = 200
"""Where the settings say nothing else."""
FLUSH_MS_MIN: Final = 10
FLUSH_MS_MAX: Final = 10_000
_LEAST: Final = {"retention_ms": 1, "group_expiry_ms": 0, "temporary_group_ms": 1, "idempotency_window_ms": 1}
OWN_FIELDS: Final = (*_LEAST, "delay_levels", "durability", "flush_ms")
FIELDS: Final = (*group_policies.FIELDS, *OWN_FIELDS)
"""Names, of the policy's fields too; no two are alike."""


def fault(settings: ClusterSettings, unset: Iterable[str] = ()) -> str:
    """Return what is wrong with a change of the settings, and what would do; empty: nothing."""
    listed = list(unset)
    if unknown := [name for name in listed if name not in FIELDS]:
        return f"there is no setting {unknown[0][:80]!r} to unset: name some of {', '.join(FIELDS)}"
    if twice := [name for name in listed if name in OWN_FIELDS and settings.HasField(name)]:
        return f"{twice[0]} is set and unset at once: do one of the two"
    for name, least in _LEAST.items():
        if settings.HasField(name) and not least <= getattr(settings, name) <= TIME_MS_MAX:
            return f"{name} is {least} to {TIME_MS_MAX}"
    if settings.HasField("delay_levels"):
        delays = settings.delay_levels.delay_ms
        if not 1 <= len(delays) <= DELAY_LEVELS_MAX or not all(1 <= one <= TIME_MS_MAX for one in delays):
            return f"delay_levels has 1 to {DELAY_LEVELS_MAX} delays of 1 to {TIME_MS_MAX} ms"
    if settings.HasField("durability") and settings.durability not in (DURABILITY_SYNC, DURABILITY_ASYNC):
        return "durability is sync or async"
    if settings.HasField("flush_ms") and not FLUSH_MS_MIN <= settings.flush_ms <= FLUSH_MS_MAX:
        return f"flush_ms is {FLUSH_MS_MIN} to {FLUSH_MS_MAX}"
    of_policy = [name for name in listed if name in group_policies.FIELDS]
    return group_policies.fault(settings.group_policy, of_policy)


class ClusterDefaults:
    """The settings as they are, and whether a leader has seeded them."""

    def __init__(self) -> None:
        self.settings = ClusterSettings()
        self.seeded = False

    @property
    def flush_ms(self) -> int:
        """Time within which what is written is flushed; 0: before it is acknowledged."""
        settings = self.settings
        if settings.durability != DURABILITY_ASYNC:
            return 0
        return settings.flush_ms or FLUSH_MS

    def change(self, command: log_pb.ClusterSettingsCommand) -> None:
        """Apply a command without a fault. A seed leaves what is set as it is, and only the first counts."""
        if command.seed and self.seeded:
            return
        changed = ClusterSettings()
        if command.seed:
            self.seeded = True
            changed.CopyFrom(command.settings)
            _set(changed, self.settings)
        else:
            changed.CopyFrom(self.settings)
            for name in command.unset:
                part = changed.group_policy if name in group_policies.FIELDS else changed
                part.ClearField(name)
            _set(changed, command.settings)
        if not changed.group_policy.ListFields():
            changed.ClearField("group_policy")
        self.settings = changed

    def capture(self) -> list[bytes]:
        """Return a part of a checkpoint, where there is anything to keep: an earlier version knows none."""
        if not (self.seeded or self.settings.ListFields()):
            return []
        part = log_pb.ClusterCheckpoint(settings=self.settings, seeded=self.seeded)
        return [log_pb.Checkpoint(cluster=part).SerializeToString()]

    def recover(self, checkpoint: log_pb.Checkpoint) -> None:
        """Become what ``capture`` saw."""
        self.settings = ClusterSettings()
        self.settings.CopyFrom(checkpoint.cluster.settings)
        self.seeded = checkpoint.cluster.seeded


def _set(settings: ClusterSettings, change: ClusterSettings) -> None:
    for field, _ in change.ListFields():
        if field.name == "group_policy":
            whole = group_policies.changed(settings.group_policy, change.group_policy, ())
            settings.ClearField("group_policy")
            if whole is not None:
                settings.group_policy.CopyFrom(whole)
        else:
            settings.ClearField(field.name)  # else two lists of delays would be joined
            settings.MergeFrom(_alone(change, field.name))


def _alone(settings: ClusterSettings, name: str) -> ClusterSettings:
    """Return settings with one field of these."""
    alone = ClusterSettings()
    alone.CopyFrom(settings)
    for field, _ in settings.ListFields():
        if field.name != name:
            alone.ClearField(field.name)
    return alone
