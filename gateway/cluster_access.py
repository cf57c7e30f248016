"""Access to the cluster with one token, which all calls that bear the token share."""

from __future__ import annotations

from tarry.client.aio import Client, Producer
from tarry.client.settings import Settings


class ClusterAccess:
    """One token's way to the cluster."""

    def __init__(self, settings: Settings) -> None:
        self.client = Client(settings)
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        """The producer of all calls that bear the token."""
        if self._producer is None:
            self._producer = self.client.producer()
        return self._producer
