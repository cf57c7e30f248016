"""Inheritance: what a leader tells the next one of a group's feeds, and what that one makes of it.

below the cursor ─► may be in flight: held until its consumers are back, or for the default lease
leases of consumers without a stream, who never come back and say ─► go on as they are
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.node.delivery.feed import Feed
from tarry.node.delivery.leases import Leases
from tarry.proto import tarry_log_pb2 as log_pb

LEASES_NAMED_MAX: Final = 1_024
"""Messages in flight to consumers without a stream that a heartbeat names, shared by the groups; others
are held like what streams have."""

AHEAD_MS: Final = 1_000
"""By which the cluster time of the leader before may have been ahead: what is due after that it has not
delivered, though its cursor may be behind."""

CONSUMERS_NAMED_MAX: Final = 64
"""Consumers without a stream that a cursor names for leases beyond: one is enough to hold them all."""


def cursors(
    group: str,
    feeds: Mapping[int, Feed],
    leases: Leases,
    streams: Collection[str],
    limits: Mapping[int, int],
    room: int,
) -> list[log_pb.Cursor]:
    """Return the cursor of each feed.

    Args:
        streams: the consumers that have a stream, or may come back to one.
        limits: offset by queue, below which messages may be delivered.
        room: how many messages to name at most as leased by others.
    """
    named: dict[int, list[log_pb.Lease]] = {}
    rest: set[str] = set()
    if any(name not in streams for feed in feeds.values() for name in feed.in_flight):
        named, rest = _leases_named(leases, streams, room)
    return [
        log_pb.Cursor(
            group=group,
            queue=number,
            offset=feed.cursor,
            consumers=sorted(rest.union(streams)),
            doubtful=max(feed.doubtful, limits.get(number, 0)),
            leases=named.get(number),
        )
        for number, feed in feeds.items()
    ]


def limits(feeds: Mapping[int, Feed], sent_s: float | None, now_ms: int, most: int) -> dict[int, int]:
    """Return what a heartbeat sent then reserves, by queue: ``most`` above what is needed; None: nothing."""
    reserved = {}
    for number, feed in feeds.items():
        if sent_s is None:
            feed.reservation.revoke()
        else:
            reserved[number] = feed.reservation.extend(sent_s, feed.reserves(now_ms, most))
    return reserved


def take_over(feed: Feed, leases: Leases, cursor: log_pb.Cursor, now_ms: int, lease_ms: int) -> None:
    """Hold what is below the cursor, and let the leases that it names go on."""
    feed.hold(cursor.offset, now_ms + lease_ms, cursor.doubtful, now_ms + AHEAD_MS)
    for lease in cursor.leases:
        offsets, ends = np.frombuffer(lease.offset, "<u8"), np.frombuffer(lease.until_ms, "<i8")
        for end_ms in np.unique(ends).tolist():
            kept = feed.resume(lease.consumer, offsets[ends == end_ms], end_ms)
            if kept:
                leases.add(feed, kept)


def _leases_named(
    leases: Leases, streams: Collection[str], room: int
) -> tuple[dict[int, list[log_pb.Lease]], set[str]]:
    """Return the leases of consumers without a stream, by queue, and some who have more than named."""
    rest: set[str] = set()
    parts: defaultdict[tuple[int, str], list[tuple[int, NDArray[np.uint64]]]] = defaultdict(list)
    for feed, batch in leases:
        if not batch.left or batch.consumer in streams:
            continue
        if batch.left > room:
            rest.add(batch.consumer)
            if len(rest) == CONSUMERS_NAMED_MAX:
                break
            continue
        room -= batch.left
        parts[feed.queue.queue, batch.consumer].append((batch.until_ms, feed.left_of(batch)))
    named: defaultdict[int, list[log_pb.Lease]] = defaultdict(list)
    for (queue, consumer), some in parts.items():
        ends = np.repeat([until_ms for until_ms, _ in some], [len(offsets) for _, offsets in some])
        named[queue].append(
            log_pb.Lease(
                consumer=consumer,
                offset=np.concatenate([offsets for _, offsets in some]).astype("<u8").tobytes(),
                until_ms=ends.astype("<i8").tobytes(),
            )
        )
    return named, rest
