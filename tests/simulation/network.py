"""A network that delays, drops, repeats, overtakes and cuts, all from one random source."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass

from tarry.proto.tarry_peer_pb2 import (
    FetchSnapshotResponse,
    PeerFrame,
    PeerMessage,
    RecallResponse,
    SnapshotFile,
)
from tarry.replication.raft.membership import Origin
from tarry.replication.settings import ReplicationSettings
from tarry.replication.snapshot.transfer import SnapshotFailed
from tarry.replication.spoken_peers import SpokenPeers
from tarry.replication.transport.blocked_port import BlockedPort
from tarry.replication.transport.envelope import FrameRefused, Identity, Inbound, Outbound
from tarry.replication.transport.interface import ServeSnapshot
from tarry.replication.transport.send_queue import PeerQueue
from tests.simulation.processor import Processor

_FRAMES = ReplicationSettings(frame_bytes_max=64 << 10)

Watch = Callable[[str, str, bytes], None]


@dataclass(slots=True)
class Weather:
    """Delays in seconds, the rest are probabilities of one frame."""

    delay_min: float = 0.0002
    delay_max: float = 0.001
    loss: float = 0.0
    duplicate: float = 0.0
    duplicate_delay: float = 0.3
    overtake: float = 0.0
    bulk_delay: float = 0.0
    """Of the bulk streams, at most, beyond the rest: all else is then ahead of it."""


class Network:
    def __init__(self, rng: random.Random, watch: Watch) -> None:
        self.rng = rng
        self.weather = Weather()
        self.ends: dict[str, SimTransport] = {}
        self.introduced: dict[str, SimTransport] = {}
        """Those too that have not started yet."""
        self.addresses: dict[str, str] = {}
        """Of nodes that are reached only there; the others are found by their names."""
        self.watch(watch)
        self._cuts: dict[tuple[str, str], bool] = {}  # (from, to): whether the ends notice
        self._last: dict[tuple[str, str, bool], float] = {}
        self._held: dict[tuple[str, str], list[bytes]] = {}
        self.chunk_s = 0.002
        self.chunks_to_damage = 0
        """Of snapshots; the next ones."""
        self.chunks = 0
        self.frames = 0
        self.dropped = 0
        self.refused = 0
        self.bytes_per_s: float | None = None
        """Of each way between two nodes; None: frames take no time for their size."""
        self._pipes: dict[tuple[str, str], _Pipe] = {}

    def watch(self, watch: Watch) -> None:
        """Tell of each message that is said to `watch` from now on."""
        self._watch = watch

    def cut(self, sender: str, receiver: str, *, noticed: bool) -> None:
        self._cuts[sender, receiver] = noticed
        self.refresh()

    def mend(self, sender: str, receiver: str) -> None:
        """Undoes one cut."""
        self._cuts.pop((sender, receiver), None)
        self.refresh()

    def hold(self, sender: str, receiver: str) -> None:
        """Frames wait, in order, until they are let go."""
        self._held[sender, receiver] = []

    def let_go(self, sender: str, receiver: str) -> None:
        for frame in self.take(sender, receiver):
            self.carry(sender, receiver, frame)

    def take(self, sender: str, receiver: str) -> list[bytes]:
        """Hold no more frames of that way; return those that have waited."""
        return self._held.pop((sender, receiver))

    def heal(self) -> None:
        self._cuts.clear()
        for sender, receiver in list(self._held):
            self.let_go(sender, receiver)
        self.refresh()

    def refresh(self) -> None:
        for end in list(self.ends.values()):
            end.refresh()

    def passes(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self._cuts and receiver in self.ends

    def joins(self, one: str, other: str) -> bool:
        return not any(way in self._cuts for way in ((one, other), (other, one)))

    def seems_open(self, sender: str, receiver: str, address: str) -> bool:
        there_and_back = ((sender, receiver), (receiver, sender))
        found = receiver in self.ends and self.addresses.get(receiver, address) == address
        return found and not any(self._cuts.get(way, False) for way in there_and_back)

    def carry(self, sender: str, receiver: str, frame: bytes) -> None:
        self.frames += 1
        if (sender, receiver) in self._held:
            self._held[sender, receiver].append(frame)
            return
        if not self.passes(sender, receiver) or self.rng.random() < self.weather.loss:
            self.dropped += 1
            return
        said_at, bulk = self._now_of(sender), PeerFrame.FromString(frame).bulk
        if self.bytes_per_s is None:
            self._travel((sender, receiver, bulk), frame, said_at)
        else:
            pipe = self._pipes.setdefault((sender, receiver), _Pipe(self, sender, receiver))
            pipe.put(frame, said_at, bulk=bulk)

    def _now_of(self, sender: str) -> float:
        end = self.ends.get(sender)
        return asyncio.get_running_loop().time() if end is None else end.processor.now()

    def _travel(self, stream: tuple[str, str, bool], frame: bytes, sent_at: float) -> None:
        """After its last byte has left. In order on each stream, in any order across two."""
        rng, weather, loop = self.rng, self.weather, asyncio.get_running_loop()
        sender, receiver, bulk = stream
        at = sent_at + rng.uniform(weather.delay_min, weather.delay_max)
        if bulk and weather.bulk_delay:
            at += rng.uniform(0, weather.bulk_delay)
        if rng.random() >= weather.overtake:
            at = max(at, self._last.get(stream, 0.0) + 1e-6)
        self._last[stream] = at
        there = self.ends.get(receiver)
        context = Context() if there is None else there.processor.context
        loop.call_at(at, self._arrive, sender, receiver, frame, context=context)
        if rng.random() < weather.duplicate:
            at += rng.random() * weather.duplicate_delay
            loop.call_at(at, self._arrive, sender, receiver, frame, context=context)

    def _arrive(self, sender: str, receiver: str, frame: bytes) -> None:
        end = self.ends.get(receiver)
        if end is not None and self.passes(sender, receiver):
            end.arrive(frame)

    def said(self, sender: str, receiver: str, message: bytes) -> None:
        self._watch(sender, receiver, message)


class _Pipe:
    """A link of limited bandwidth: frames leave one after another, each for its size. Two streams share it as
    two connections do: what is urgent waits for one frame of bulk at most."""

    def __init__(self, network: Network, sender: str, receiver: str) -> None:
        self._network = network
        self._way = (sender, receiver)
        self._waiting: dict[bool, deque[tuple[bytes, float]]] = {False: deque(), True: deque()}
        self._busy = False

    def put(self, frame: bytes, said_at: float, *, bulk: bool) -> None:
        self._waiting[bulk].append((frame, said_at))
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        loop, bulk = asyncio.get_running_loop(), not self._waiting[False]
        frame, said_at = self._waiting[bulk].popleft()
        takes_s = len(frame) / self._network.bytes_per_s if self._network.bytes_per_s else 0.0
        self._busy = True
        loop.call_at(max(loop.time(), said_at) + takes_s, self._end, frame, bulk, context=Context())

    def _end(self, frame: bytes, bulk: bool) -> None:
        self._network._travel((*self._way, bulk), frame, asyncio.get_running_loop().time())
        self._busy = False
        if any(self._waiting.values()):
            self._begin()


class SimTransport:
    """One start of one node on the network."""

    def __init__(self, network: Network, node: str, processor: Processor) -> None:
        self.processor = processor
        self._network = network
        self._node = node
        self._epochs = itertools.count(1)
        self._ways: dict[str, Outbound] = {}
        self._addresses: Mapping[str, str] = {}
        self._up: set[str] = set()
        self._dead = False

    def introduce(self, spoken_peers: SpokenPeers) -> None:
        self.spoken_peers = spoken_peers
        self._network.introduced[self._node] = self

    async def recall(self, peer: str, address: str) -> RecallResponse | None:
        await asyncio.sleep(self._network.rng.uniform(0.0005, 0.002))
        other = self._network.introduced.get(peer)
        if other is None or not self._network.joins(self._node, peer):
            return None
        return RecallResponse.FromString(other.spoken_peers.recall().SerializeToString())

    def start(
        self,
        identity: Identity,
        receive: Callable[[str, list[PeerMessage], Origin], None],
        link: Callable[[str, bool], None],
        serve_snapshot: ServeSnapshot,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._identity, self._receive, self._link = identity, receive, link
        self.serve_snapshot = serve_snapshot
        self._inbound = Inbound(identity.cluster, identity.node)
        self._network.ends[self._node] = self
        self._network.refresh()

    def restart(self, identity: Identity) -> None:
        self._identity = identity
        for peer in self._ways:
            self._ways[peer] = Outbound(identity, peer, self._epochs)
            self._ways[peer].begin()

    def set_peers(self, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses
        for peer in set(self._ways) - set(addresses):
            del self._ways[peer]
            self._up.discard(peer)
        for peer in addresses:
            self._ways.setdefault(peer, Outbound(self._identity, peer, self._epochs))
        self.refresh()

    def blocked(self) -> Mapping[str, BlockedPort]:
        return {}

    def send(self, peer: str, messages: Sequence[bytes], *, bulk: bool = False) -> bool:
        if self._dead:
            return False
        for message in messages:
            self._network.said(self._node, peer, message)
        if peer not in self._up:
            return False
        queue = PeerQueue(_FRAMES, bulk=bulk)
        queue.put(messages)
        while queue:
            self._network.carry(self._node, peer, queue.frame(self._ways[peer]))
        return True

    def forge(self, peer: str, message: bytes) -> None:
        """Say what this node's consensus did not."""
        if peer in self._up:
            self._network.carry(self._node, peer, self._ways[peer].seal([message]))

    async def fetch_snapshot(
        self, peer: str, kept: Sequence[SnapshotFile], level: int
    ) -> AsyncIterator[FetchSnapshotResponse]:
        end = self._network.ends.get(peer)
        if end is None:
            raise SnapshotFailed(f"{peer} is away")
        async for part in end.serve_snapshot(kept, level):
            await asyncio.sleep(self._network.chunk_s)
            if self._network.ends.get(peer) is not end or not self._network.passes(peer, self._node):
                raise SnapshotFailed(f"{peer} went away")
            arrived = FetchSnapshotResponse.FromString(part.SerializeToString())
            self._network.chunks += arrived.HasField("chunk")
            if arrived.HasField("chunk") and self._network.chunks_to_damage:
                self._network.chunks_to_damage -= 1
                arrived.chunk.data = bytes([arrived.chunk.data[0] ^ 1]) + arrived.chunk.data[1:]
            yield arrived

    async def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._dead = True
        if self._network.introduced.get(self._node) is self:
            del self._network.introduced[self._node]
        if self._network.ends.get(self._node) is self:
            del self._network.ends[self._node]
            self._network.refresh()

    def arrive(self, frame: bytes) -> None:
        try:
            peer, messages, origin = self._inbound.open(frame)
        except FrameRefused:
            self._network.refused += 1
            return
        if messages:
            self._receive(peer, messages, origin)

    def refresh(self) -> None:
        """Links follow what can be noticed of the network, after a while."""
        delay = self._network.rng.uniform(0.002, 0.02)
        asyncio.get_running_loop().call_later(delay, self._settle, context=self.processor.context)

    def _settle(self) -> None:
        if self._dead:
            return
        for peer in sorted(self._ways):
            is_open = self._network.seems_open(self._node, peer, self._addresses[peer])
            if is_open and peer not in self._up:
                self._up.add(peer)
                self._ways[peer].begin()
                self._link(peer, True)
            elif not is_open and peer in self._up:
                self._up.discard(peer)
                self._link(peer, False)
