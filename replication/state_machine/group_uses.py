"""Last use of each group, and when it is to be deleted where nobody uses it.

Every command of a group has a time, so replicas that apply the same entries know the same. It is no part of
the digest and decides nothing in applying: the leader looks at it (node/leader/group_expiry.py), and what it
deletes is in the log. So replicas of a version that keeps none of it may be beside these.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from tarry.proto import tarry_log_pb2 as log_pb

Name: TypeAlias = tuple[str, str]
"""Topic and group."""


class Use(NamedTuple):
    """Last use of a group, and what becomes of it without any."""

    used_ms: int = 0
    """Time of its last command; 0: from before it was kept."""
    life: log_pb.GroupLife = log_pb.GROUP_LIFE_UNSPECIFIED
    expiry_ms: int = 0
    """0: the cluster's."""
    expired: int = 0
    """Messages trimmed before it had acknowledged them."""
    dropped: int = 0
    """Messages given up for good."""


UNKNOWN: Final = Use()
"""Of a group from before it was kept."""


class GroupUses:
    """Topic and group -> use."""

    def __init__(self) -> None:
        self._uses: dict[Name, Use] = {}
        self._parts: dict[Name, bytes] = {}
        self._changed: set[Name] = set()  # whose parts are to be built anew

    def of(self, topic: str, group: str) -> Use:
        """Return the use of a group."""
        return self._uses.get((topic, group), UNKNOWN)

    def subscribed(self, command: log_pb.SubscribeCommand, *, made: bool) -> None:
        """Note that a group was made or is used; without a life, one that is there is kept.

        One that is there stays what it was made as, unless an operator asks for something else; where that is
        not known, an operator may have made it.
        """
        known = self.of(command.topic, command.group)
        use = Use(command.now_ms, command.life, command.expiry_ms)
        if not made and command.life and not command.asked:
            use = known._replace(used_ms=max(known.used_ms, command.now_ms))
        elif not made:
            use = use._replace(expired=known.expired, dropped=known.dropped)
        self._set((command.topic, command.group), use)

    def settled(self, topic: str, group: str, now_ms: int) -> None:
        """Note that a group is used."""
        name = topic, group
        known = self._uses.get(name, UNKNOWN)
        if now_ms > known.used_ms:
            self._set(name, known._replace(used_ms=now_ms))

    def expired(self, topic: str, group: str, messages: int) -> None:
        """Count messages that are trimmed before the group has acknowledged them."""
        known = self.of(topic, group)
        self._set((topic, group), known._replace(expired=known.expired + messages))

    def dropped(self, topic: str, group: str, messages: int) -> None:
        """Count messages that the group gives up for good."""
        known = self.of(topic, group)
        self._set((topic, group), known._replace(dropped=known.dropped + messages))

    def forget(self, topic: str, group: str) -> None:
        """Forget a group that is deleted."""
        if self._uses.pop((topic, group), None) is not None:
            self._changed.add((topic, group))

    def _set(self, name: Name, use: Use) -> None:
        self._uses[name] = use
        self._changed.add(name)

    def build(self, most: int) -> int:
        """Build so many parts of a checkpoint anew; return how many. ``capture`` builds what is left."""
        most = min(most, len(self._changed))
        for _ in range(most):
            name = self._changed.pop()
            use = self._uses.get(name)
            if use is None:
                self._parts.pop(name, None)
                continue
            topic, group = name
            part = log_pb.GroupUse(topic=topic, group=group, **use._asdict())
            self._parts[name] = log_pb.Checkpoint(group_uses=[part]).SerializeToString()
        return most

    def capture(self) -> list[bytes]:
        """Return parts of a checkpoint: laid end to end they are a Checkpoint, serialized."""
        self.build(len(self._changed))
        return list(self._parts.values())

    def recover(self, checkpoint: log_pb.Checkpoint) -> None:
        """Become what ``capture`` saw."""
        for part in checkpoint.group_uses:
            use = Use(part.used_ms, part.life, part.expiry_ms, part.expired, part.dropped)
            self._set((part.topic, part.group), use)
        self.capture()
