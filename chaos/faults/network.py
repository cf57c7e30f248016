"""Partitions by their names: which links to cut."""

from __future__ import annotations

from collections.abc import Sequence

from tarry.chaos.cluster.proxies import CLIENT, Link, between


def isolated(node: str, nodes: Sequence[str], *, clients: bool = False) -> list[Link]:
    """Return the links of one node, both ways; with its clients' too where asked for."""
    links = between({node}, set(nodes) - {node})
    return [*links, (CLIENT, node)] if clients else links


def deaf(node: str, nodes: Sequence[str]) -> list[Link]:
    """Return the links to one node: it is not heard less, but hears nobody."""
    return [(other, node) for other in nodes if other != node]


def mute(node: str, nodes: Sequence[str]) -> list[Link]:
    """Return the links from one node: it hears everybody, and nobody hears it."""
    return [(node, other) for other in nodes if other != node]


def bridge(nodes: Sequence[str]) -> list[Link]:
    """Return the links to cut so that two halves meet in the first node only."""
    middle = len(nodes[1:]) // 2 + 1
    return between(nodes[1:middle], nodes[middle:])


def ring(nodes: Sequence[str]) -> list[Link]:
    """Return the links to cut so that each node reaches its two neighbours only: five nodes or more."""
    size = len(nodes)
    return [
        (a, b)
        for place, a in enumerate(nodes)
        for other, b in enumerate(nodes)
        if (place - other) % size not in {0, 1, size - 1}
    ]
