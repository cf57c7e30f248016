"""The smallest machine with a state: a hash over everything applied."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import google_crc32c

from tarry.proto.tarry_peer_pb2 import LogPosition, SnapshotFile, SnapshotManifest

Applied = Callable[[int, int, Sequence[bytes], bytes], None]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    index: int = 0
    digest: bytes = b""


class Toy:
    """The outcome of a command is the index at which it was applied."""

    def __init__(self, checkpoint: Checkpoint, watch: Applied) -> None:
        self.applied_index = checkpoint.index
        self.digest = checkpoint.digest
        self._watch = watch

    def apply(self, index: int, term: int, commands: Sequence[bytes]) -> Sequence[int]:
        commands = list(commands)
        assert index == self.applied_index + 1
        self.applied_index = index
        hasher = hashlib.blake2b(self.digest, digest_size=16)
        hasher.update(index.to_bytes(8, "big") + term.to_bytes(8, "big"))
        for command in commands:
            hasher.update(command)
        self.digest = hasher.digest()
        self._watch(index, term, commands, self.digest)
        return [index] * len(commands)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.applied_index, self.digest)


class ToySnapshot:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self._data = checkpoint.digest + bytes(1 << 20)
        file = SnapshotFile(name="digest", size_bytes=len(self._data), crc32c=google_crc32c.value(self._data))
        self.manifest = SnapshotManifest(position=LogPosition(index=checkpoint.index), files=[file])

    def read(self, file: int, offset: int, size_bytes: int) -> bytes:
        return self._data[offset : offset + size_bytes]

    def close(self) -> None: ...


class ToySnapshots:
    """Source and sink: the checkpoint is what is durable of the machine."""

    def __init__(
        self, machine: Toy, load: Callable[[], Checkpoint], store: Callable[[Checkpoint], None]
    ) -> None:
        self._machine = machine
        self._load = load
        self._store = store
        self._index = 0
        self._data = bytearray()

    async def open_snapshot(self) -> ToySnapshot:
        return ToySnapshot(self._load())

    def kept(self) -> list[SnapshotFile]:
        data = bytes(self._data)
        return (
            [SnapshotFile(name="digest", size_bytes=len(data), crc32c=google_crc32c.value(data))]
            if data
            else []
        )

    def begin(self, manifest: SnapshotManifest) -> None:
        self._index = manifest.position.index

    def write(self, file: int, offset: int, data: bytes) -> None:
        del self._data[offset:]
        self._data += data

    def prove(self) -> None: ...

    def install(self) -> None:
        checkpoint = Checkpoint(self._index, bytes(self._data[:16]))
        self._store(checkpoint)
        self._machine.applied_index, self._machine.digest = checkpoint.index, checkpoint.digest

    async def adopt(self) -> None: ...
