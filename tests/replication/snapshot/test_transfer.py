"""A state arrives whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import google_crc32c
import pytest

from tarry.proto.tarry_peer_pb2 import (
    FetchSnapshotResponse,
    LogPosition,
    SnapshotChunk,
    SnapshotFile,
    SnapshotManifest,
)
from tarry.replication.driver.serve_snapshot import _begun
from tarry.replication.snapshot.transfer import SnapshotFailed, fetch
from tarry.replication.transport import peer_service

FILES = {"empty": b"", "one": b"first file", "two": b"the second"}


def described(name: str, data: bytes) -> SnapshotFile:
    return SnapshotFile(name=name, size_bytes=len(data), crc32c=google_crc32c.value(data))


def manifest_of_all() -> SnapshotManifest:
    files = [described(name, data) for name, data in FILES.items()]
    return SnapshotManifest(position=LogPosition(index=7), files=files)


def parts(chunk_bytes: int = 4) -> list[FetchSnapshotResponse]:
    said = [FetchSnapshotResponse(manifest=manifest_of_all())]
    for place, data in enumerate(FILES.values()):
        for offset in range(0, len(data), chunk_bytes):
            piece = data[offset : offset + chunk_bytes]
            crc = google_crc32c.value(piece)
            chunk = SnapshotChunk(file=place, offset=offset, data=piece, crc32c=crc)
            said.append(FetchSnapshotResponse(chunk=chunk))
    return said


class Sink:
    def __init__(self, *kept: bytes) -> None:
        """`kept`: of the files, in the manifest's order."""
        self.manifest: SnapshotManifest | None = None
        self.data = dict(enumerate(kept))
        self.damaged = False

    def kept(self) -> list[SnapshotFile]:
        names = list(FILES)
        return [described(names[n], data) for n, data in self.data.items()]

    def begin(self, manifest: SnapshotManifest) -> None:
        self.manifest = manifest

    def write(self, file: int, offset: int, data: bytes) -> None:
        self.data[file] = self.data.get(file, b"")[:offset] + data

    def prove(self) -> None:
        if self.damaged:
            raise SnapshotFailed("what came is damaged")

    def install(self) -> None: ...

    async def adopt(self) -> None: ...


async def at_once(work: Callable[[], Any], /) -> Any:
    return work()


async def bring(said: list[FetchSnapshotResponse], sink: Sink) -> LogPosition:
    async def stream(kept: object) -> AsyncIterator[FetchSnapshotResponse]:
        for part in said:
            yield part

    return await fetch(stream, sink, at_once)


async def test_files_arrive_byte_for_byte() -> None:
    sink = Sink()
    position = await bring(parts(), sink)
    assert position.index == 7
    assert sink.data == {1: b"first file", 2: b"the second"}


async def test_what_came_whole_and_is_damaged_all_the_same_is_not_taken() -> None:
    sink = Sink()
    sink.damaged = True
    with pytest.raises(SnapshotFailed, match="what came is damaged"):
        await bring(parts(), sink)


async def test_what_is_here_already_is_not_sent_again() -> None:
    sink = Sink(b"", b"first fi", b"the second")
    said = [parts()[0], *(part for part in parts() if (part.chunk.file, part.chunk.offset) == (1, 8))]
    await bring(said, sink)
    assert sink.data == {0: b"", 1: b"first file", 2: b"the second"}


async def test_of_more_files_than_a_request_may_name_the_largest_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarry.replication.snapshot.transfer.KEPT_FILES_MAX", 1)
    sink, asked = Sink(b"", b"first", b"the second"), list[str]()
    said = [part for part in parts() if not part.HasField("chunk") or part.chunk.file < 2]

    async def stream(kept: Sequence[SnapshotFile]) -> AsyncIterator[FetchSnapshotResponse]:
        asked.extend(file.name for file in kept)
        for part in said:
            yield part

    await fetch(stream, sink, at_once)
    assert asked == ["two"]
    assert sink.data == {0: b"", 1: b"first file", 2: b"the second"}


async def test_what_is_here_and_differs_is_replaced() -> None:
    sink = Sink(b"longer", b"first fo", b"the other!")
    await bring(parts(), sink)
    assert sink.data == {0: b"longer", 1: b"first file", 2: b"the second"}  # begin would have cut the first


async def test_who_goes_on_where_it_should_not_is_noticed() -> None:
    said = [parts()[0], *(part for part in parts() if part.chunk.offset == 8)]
    with pytest.raises(SnapshotFailed, match="one: checksum"):
        await bring(said, Sink(b"", b"first fo"))


@pytest.mark.parametrize("place", range(len(parts())))
async def test_a_missing_part_is_noticed(place: int) -> None:
    said = parts()
    del said[place]
    with pytest.raises(SnapshotFailed):
        await bring(said, Sink())


@pytest.mark.parametrize("place", range(len(parts())))
async def test_a_doubled_part_is_noticed(place: int) -> None:
    said = parts()
    said.insert(place, said[place])
    with pytest.raises(SnapshotFailed):
        await bring(said, Sink())


@pytest.mark.parametrize("place", range(1, len(parts())))
async def test_a_damaged_part_is_noticed(place: int) -> None:
    said = parts()
    said[place].chunk.data = bytes(len(said[place].chunk.data))
    with pytest.raises(SnapshotFailed):
        await bring(said, Sink())


async def test_a_part_damaged_together_with_its_checksum_is_noticed_by_the_files() -> None:
    said = parts()
    said[2].chunk.data = bytes(len(said[2].chunk.data))
    said[2].chunk.crc32c = google_crc32c.value(said[2].chunk.data)
    with pytest.raises(SnapshotFailed, match="one: checksum"):
        await bring(said, Sink())


async def test_a_part_of_another_place_is_noticed_though_the_files_bytes_are_all_there() -> None:
    said = parts()
    said[2].chunk.offset += 4
    with pytest.raises(SnapshotFailed, match="at 8 instead of 1 at 4"):
        await bring(said, Sink())


class Given:
    """A state of FILES that is given away."""

    manifest = manifest_of_all()

    def read(self, file: int, offset: int, size_bytes: int) -> bytes:
        return list(FILES.values())[file][offset : offset + size_bytes]

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("kept", "begun"),
    [(b"", 0), (b"first", 5), (b"farst", 0), (b"first file", 10), (b"first file, longer", 0)],
)
def test_of_a_file_only_what_follows_its_own_beginning_is_sent(kept: bytes, begun: int) -> None:
    assert _begun(Given(), 1, described("one", kept)) == begun


async def test_a_state_of_which_no_more_comes_is_given_up() -> None:
    """Who gives it may be alive, and its disk not: another leader is asked then."""

    async def stream(kept: object) -> AsyncIterator[FetchSnapshotResponse]:
        yield parts()[0]
        await asyncio.Event().wait()

    async with asyncio.timeout(10):
        with pytest.raises(SnapshotFailed, match="nothing has come"):
            await fetch(stream, Sink(), at_once, stall_ms=10)


async def test_a_part_that_is_not_taken_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the files of an old state stay on a leader's disk for whoever stopped in the middle."""
    monkeypatch.setattr(peer_service, "SNAPSHOT_STALL_MS", 10)

    async def gives() -> AsyncIterator[int]:
        for number in range(3):
            with peer_service._taken_in_time():
                yield number

    async def takes(pauses: bool) -> list[int]:
        taken = []
        async for number in gives():
            taken.append(number)
            if pauses:
                await asyncio.Event().wait()
        return taken

    assert await takes(pauses=False) == [0, 1, 2]
    await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(takes(pauses=True))
