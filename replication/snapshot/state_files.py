"""A replica's whole state as files: what a leader gives, and what a follower takes in its place.

The files are append-only, so a checkpoint and the lengths in it are a state that
stays as it is while the machine goes on. Slots are not sent: they are rebuilt.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import google_crc32c
from google.protobuf.message import DecodeError

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_peer_pb2 import LogPosition, SnapshotFile, SnapshotManifest
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.snapshot.state_damage import StateDamage, damage_in
from tarry.replication.snapshot.state_folder import StateFolder
from tarry.replication.snapshot.transfer import SnapshotFailed
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.checkpoint import CheckpointRefused, CheckpointStore
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import QueueDamaged
from tarry.wheel.delay_log import UNIT_BYTES
from tarry.wheel.far_segment import FAR_UNIT_BYTES, segment_name
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.index_checksum import checksum

CHECKPOINT_NAME: Final = "checkpoint.bin"


@dataclass(slots=True)
class FilesSnapshot:
    """A state that stays: the checkpoint in memory, the other files on disk, opened one at a time.

    There are tens of thousands of them; the machine deletes none as long as a snapshot of it is open.
    """

    manifest: SnapshotManifest
    checkpoint: bytes
    machine: Machine
    folder: Path
    """Folder of the machine's state at that time; its files go once another state takes its place."""
    open: bool = True

    def read(self, file: int, offset: int, size_bytes: int) -> bytes:
        """Return a part of a file of the manifest. Raises SnapshotFailed where it cannot be read."""
        if file == 0:
            return self.checkpoint[offset : offset + size_bytes]
        try:
            with (self.folder / self.manifest.files[file].name).open("rb") as source:
                return os.pread(source.fileno(), size_bytes, offset)
        except OSError as error:
            raise _unreadable(error) from error

    def close(self) -> None:
        """Let the files go."""
        if self.open:
            self.open = False
            self.machine.snapshots -= 1


class StateSource:
    """Source of the machine's state for other replicas."""

    def __init__(
        self,
        machine: Machine,
        checkpoint: Callable[[], Awaitable[bytes]],
        run_blocking: RunBlocking = in_thread,
        on_damage: Callable[[StateDamage], None] = lambda _: None,
    ) -> None:
        """Take ``checkpoint``, which writes and returns one; ``on_damage`` is told why no state is given."""
        self._machine = machine
        self._on_damage = on_damage
        self._checkpoint = checkpoint
        self._run_blocking = run_blocking

    async def open_snapshot(self) -> FilesSnapshot:
        """Return the state as of a new checkpoint.

        Raises SnapshotFailed where a file of it is damaged, or no checkpoint can be written.
        """
        self._machine.snapshots += 1  # before the checkpoint, so that no later one deletes what it names
        try:
            return await self._open()
        except BaseException:
            self._machine.snapshots -= 1
            raise

    async def _open(self) -> FilesSnapshot:
        try:
            written = await self._checkpoint()
        except CheckpointRefused as refused:
            raise SnapshotFailed(str(refused)) from refused
        root, queues = self._machine.folder, self._machine.queues
        try:
            damage = await self._run_blocking(partial(damage_in, root, written))
            if damage:
                self._on_damage(damage)
                raise SnapshotFailed(f"cannot be sent before it is mended: {damage}")
            manifest, checkpoint = await self._run_blocking(partial(_listed, written, root, queues))
        except OSError as error:
            raise _unreadable(error) from error
        return FilesSnapshot(manifest, checkpoint, self._machine, root)


class StateSink:
    """Destination of a state that takes the place of the machine's."""

    def __init__(
        self,
        machine: Machine | None,
        folder: StateFolder,
        writing: asyncio.Lock | None = None,
        run_blocking: RunBlocking = in_thread,
        on_damage: Callable[[StateDamage], None] = lambda _: None,
        applies: int = levels.HIGHEST,
        on_left: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        """Take ``machine``; None: no state is open, and ``adopt`` is not called.

        ``writing`` is held by whoever writes a checkpoint of the machine.
        ``on_damage`` hears, in a thread, why a state that came is not used.
        ``applies``: the highest level that this node can apply.
        ``on_left`` hears, in a thread, why files of the replaced state are left: the next start removes them.
        """
        self._applies = applies
        self._on_left = on_left
        self._machine = machine
        self._folder = folder
        self._on_damage = on_damage
        self._writing = writing or asyncio.Lock()
        self._run_blocking = run_blocking
        self._paths: list[Path] = []

    def kept(self) -> list[SnapshotFile]:
        """Return what is in the side folder."""
        side = self._folder.side
        kept = []
        for path in sorted(path for path in side.rglob("*") if path.is_file()):
            size = path.stat().st_size
            kept.append(_file(path.relative_to(side).as_posix(), size, checksum(path, size)))
        return kept

    def begin(self, manifest: SnapshotManifest) -> None:
        """Make the files, and keep what there is of them already."""
        side = self._folder.side
        side.mkdir(exist_ok=True)
        names = {file.name for file in manifest.files}
        for path in list(side.rglob("*")):
            if path.is_file() and path.relative_to(side).as_posix() not in names:
                path.unlink()
        self._paths = []
        for file in manifest.files:
            try:
                self._paths.append(_made(side, file))
            except (ValueError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                raise SnapshotFailed(f"{file.name!r} is no file of a state: {error}") from error

    def write(self, file: int, offset: int, data: bytes) -> None:
        """Write a part of a file; nothing comes after it."""
        with self._paths[file].open("r+b") as target:
            target.truncate(offset)
            target.seek(offset)
            target.write(data)

    def prove(self) -> None:
        """Compare what has come with its checkpoint. Raises SnapshotFailed, AnotherVersion."""
        side = self._folder.side
        try:
            checkpoint = (side / CHECKPOINT_NAME).read_bytes()
            version = log_pb.Checkpoint.FromString(checkpoint).apply_version
            levels.demand("the state that came", levels.of_checkpoint(version), self._applies)
            damage = damage_in(side, checkpoint)
        except (OSError, DecodeError, QueueDamaged) as error:
            raise SnapshotFailed(f"what came is no state: {error}") from error
        if damage:
            self._on_damage(damage)
            raise SnapshotFailed(f"what came is damaged: {damage}")

    def install(self) -> None:
        """Make the state the one that the next start opens."""
        side = self._folder.side
        arrived = side / CHECKPOINT_NAME
        store = CheckpointStore(side / "checkpoint")
        store.save(arrived.read_bytes())
        store.close()
        arrived.unlink()
        self._folder.promote()

    async def adopt(self) -> None:
        """Let the machine go over to it: a thread opens it, and one turn of the event loop swaps it in.

        The caller applies nothing meanwhile. A checkpoint under way is let finish: later, it would take the
        place of the new state's.
        """
        running = self._machine
        assert running is not None
        async with self._writing:
            opened: list[Machine] = []
            try:
                await self._run_blocking(lambda: opened.append(running.opened(self._folder.path)))
            except BaseException:
                for machine in opened:
                    machine.close()
                raise
            running.become(opened[0])
        await self._run_blocking(partial(self._remove, opened))

    def _remove(self, replaced: list[Machine]) -> None:
        """Free the memory and the files of what the machine was before. For a thread: both take long."""
        replaced.pop().free()
        try:
            self._folder.remove_others()
        except OSError as error:  # the new state is in use: that files of the old one are left ends nothing
            self._on_left(error)


def _made(side: Path, file: SnapshotFile) -> Path:
    """Return the path of an arriving file, which is made, or kept as far as it may be.

    Raises SnapshotFailed, and ValueError or one of OSError where the name is none, or of a folder.
    """
    path = side / file.name
    if not path.resolve().is_relative_to(side.resolve()):
        raise SnapshotFailed(f"{file.name} leads out of the folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if path.is_dir():
        raise IsADirectoryError("it is a folder")
    if path.stat().st_size > file.size_bytes:
        os.truncate(path, 0)
    return path


def _listed(written: bytes, root: Path, queues: Queues) -> tuple[SnapshotManifest, bytes]:
    """Return what is sent, and the checkpoint in it. Blocks; raises OSError."""
    stored = log_pb.Checkpoint.FromString(written)
    files = []
    for queue in stored.queues:
        if queue.deleted:
            continue  # its folder is removed, and nothing of it is read any more
        for path, size in queues[queue.queue].files(queue.first, queue.units):
            files.append((f"ready/{path.parent.name}/{path.name}", size))
    wheel = log_pb.WheelCheckpoint.FromString(stored.wheel)
    for hour in wheel.hours:
        hour.ClearField("slots_crc")
        name = f"hours/{folder_name(hour.hour)}"
        files.append((f"{name}/delay.log", hour.log_bytes))
        files.append((f"{name}/delay.index", hour.units * UNIT_BYTES))
    for segment in wheel.far.segments:
        name = f"hours/{segment_name(segment.number)}"
        files.append((f"{name}/delay.log", segment.log_bytes))
        files.append((f"{name}/delay.index", segment.units * FAR_UNIT_BYTES))
    stored.wheel = wheel.SerializeToString()
    stored.ClearField("keys_generation")  # the key index is not sent: it is built there, from the hours
    checkpoint = stored.SerializeToString()
    listed = [_file(CHECKPOINT_NAME, len(checkpoint), google_crc32c.value(checkpoint))]
    listed += [_file(name, size, checksum(root / name, size)) for name, size in files]
    position = LogPosition(index=stored.applied_index)
    return SnapshotManifest(position=position, files=listed), checkpoint


def _file(name: str, size_bytes: int, crc32c: int) -> SnapshotFile:
    return SnapshotFile(name=name, size_bytes=size_bytes, crc32c=crc32c)


def _unreadable(error: OSError) -> SnapshotFailed:
    return SnapshotFailed(f"cannot be sent: {error}")
