"""The query: what waits, what became of a message, and cancels by what messages have in common."""

from __future__ import annotations

from tarry.client.cluster.calls import Calls
from tarry.client.cluster.nodes import Nodes


class Query:
    """Asks what waits. Made by ``Client.query``."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._calls = Calls(nodes)
