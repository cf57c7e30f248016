"""Durability of what is acknowledged, by name."""

from __future__ import annotations

from enum import StrEnum

from tarry.proto import tarry_message_pb2 as message_pb


class Durability(StrEnum):
    """Of a cluster, or of one request, for which the stronger of both counts."""

    SYNC = "sync"
    """Flushed it to disk: no loss of power takes it back."""
    ASYNC = "async"
    """Written it: a majority that loses its power takes back what was not flushed yet."""

    @property
    def sent(self) -> message_pb.Durability:
        """As it is sent."""
        synced = self is Durability.SYNC
        return message_pb.DURABILITY_SYNC if synced else message_pb.DURABILITY_ASYNC

    @classmethod
    def of(cls, durability: int) -> Durability:
        """Return it as it came; what a later version may know is at least sync."""
        return cls.ASYNC if durability == message_pb.DURABILITY_ASYNC else cls.SYNC
