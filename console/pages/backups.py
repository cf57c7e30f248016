"""The page *Backups*: those in the folder of ``--backups``, one more into it as a job, one as a download."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tarry.client.errors import TarryError
from tarry.client.operators.backup import BackupFailed, as_stream, into_folder, source_of
from tarry.client.operators.cluster_operator import Operator
from tarry.console import folders
from tarry.console.guard import form_of
from tarry.console.jobs import Job, JobFailed, Work
from tarry.console.pages.jobs import start
from tarry.console.rendering import access_of, client_of, operators_look, render, review
from tarry.console.views import cells
from tarry.console.views.backups import COLUMNS, backup_row
from tarry.console.views.table import Row, table_of

BACK: Final = "/cluster/backups"
SHOWN_MAX: Final = 50
MANIFEST: Final = "backup.json"
MANIFEST_BYTES_MAX: Final = 4 << 20
"""Of 12,288 files with long names it has some 3 MB."""
DOWNLOADS_MAX: Final = 4
"""Under way at once, of all visitors; a node has a bound of its own."""


def _folder_of(request: Request) -> Path | None:
    given: folders.Folders = request.app.state.console.folders
    return given.backups


def _rows(folder: Path) -> tuple[list[Row], int]:
    """Return a row for each sub-folder that was changed last, and how many there are. Raises OSError."""
    found, count = folders.newest_with(folder, SHOWN_MAX, MANIFEST, MANIFEST_BYTES_MAX)
    return [backup_row(name, manifest) for name, manifest in found], count


async def _backups(request: Request) -> Response:
    look = await operators_look(request)
    folder, rows, count, fault = _folder_of(request), list[Row](), 0, ""
    if folder is not None:
        try:
            async with request.app.state.console.reading:
                rows, count = await asyncio.to_thread(_rows, folder)
        except OSError as error:
            fault = f"{folder} cannot be read: {error.strerror}"
    return render(
        request,
        "backups.html",
        look=look,
        folder=folder,
        fault=fault,
        more=count - len(rows),
        backups=table_of("backups", "Backups", COLUMNS, rows, request.query_params, "-at_ms"),
        members=[member.node for member in look.best.members] if look.best is not None else [],
    )


async def _start(request: Request) -> Response:
    form, access, look = await form_of(request), access_of(request), await operators_look(request)
    folder, name, node = _folder_of(request), form.get("name", "").strip(), form.get("node", "")
    if folder is None:
        raise HTTPException(404, "This console was started without --backups: download the backup instead.")
    if not folders.is_name(name):
        raise HTTPException(400, "a folder's name has letters, digits, dots, - and _, 64 at most")
    if not await asyncio.to_thread(folders.is_plain, folder, name):
        raise HTTPException(400, f"{name} is no folder, or has links in it: choose another name")
    operator = access.client.operator()
    status = await operator.status()
    address = source_of(status, node)
    if not form.get("confirmed"):
        leader = look.best.leader if look.best is not None else ""
        sentences = [
            f"All that {node or 'the follower that has most'} holds goes into {folder / name}.",
            "Of an earlier backup there only what is new is sent; the earlier one stays whole until then.",
            *(["It costs the leader disk and network: name a follower."] if node and node == leader else []),
        ]
        return review(request, f"Back up into {name}", sentences, form, button="Back up", back=BACK)
    return start(
        access, f"Backup into {name}", BACK, _work(operator, address, status.applied_index, folder / name)
    )


def _work(operator: Operator, address: str, index_min: int, folder: Path) -> Work:
    async def work(job: Job) -> bool:
        job.tell(0, 0, [f"{address} makes a checkpoint."])
        try:
            async with aclosing(into_folder(operator, address, index_min, folder)) as each:
                async for at in each:
                    told = at.manifest
                    sentences = [
                        f"As of entry {told.index:,}, of {told.node}.",
                        f"{min(at.file + 1, len(told.files)):,} of {len(told.files):,} files, "
                        f"{cells.size(at.new_bytes)} new.",
                    ]
                    if at.done:
                        job.tell(1, 1, [*sentences, "It is whole, and on the disk."])
                        return True
                    job.tell(at.passed_bytes, sum(file.size_bytes for file in told.files), sentences)
                    if job.stopping:
                        job.sentences = [*sentences, "The backup before it, if there is one, is whole."]
                        return False
        except BackupFailed as error:
            raise JobFailed(f"{error}. The backup before it, if there is one, is whole.") from error
        return True

    return work


async def _download(request: Request) -> Response:
    form = await form_of(request)
    await operators_look(request)
    downloads: Downloads = request.app.state.console.downloads
    if downloads.under_way >= DOWNLOADS_MAX:
        raise HTTPException(503, f"{DOWNLOADS_MAX} downloads are under way: try again when one has ended")
    downloads.under_way += 1  # before anything is waited for, so that no other passes the bound meanwhile
    try:
        return await _begun(client_of(request).operator(), form.get("node", ""), downloads)
    except BaseException:
        downloads.under_way -= 1
        raise


async def _begun(operator: Operator, node: str, downloads: Downloads) -> Response:
    """Return the download once the node has sent something: what is refused is told on a page."""
    status = await operator.status()
    stream = as_stream(operator, source_of(status, node), status.applied_index)
    try:
        first = await anext(stream)
    except BackupFailed as error:
        raise HTTPException(502, str(error)) from None
    except StopAsyncIteration:
        raise HTTPException(502, "the node has sent nothing: ask again") from None
    return _Download(first, stream, f"tarry-{status.applied_index}.backup", downloads)


@dataclass(slots=True)
class Downloads:
    """Count of the backups that are downloaded now."""

    under_way: int = 0


class _Download(Response):
    """A stream that is cut off where it fails, so that no browser takes the part for the whole.

    It is counted already; the count is less by one once it has ended.
    """

    media_type = "application/octet-stream"

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes], name: str, downloads: Downloads) -> None:
        # named identity, since the answer is not to be compressed
        headers = {"content-disposition": f'attachment; filename="{name}"', "content-encoding": "identity"}
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._first, self._rest, self._downloads = first, rest, downloads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._downloads.under_way -= 1
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait((sending, leaving))
            await self._rest.aclose()
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        try:
            async for part in self._rest:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except (TarryError, BackupFailed):
            return  # the server closes the connection of an answer without its end
        await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    """Return once the visitor has gone."""
    while (await receive())["type"] != "http.disconnect":
        continue


ROUTES: Final = (
    Route("/cluster/backups", _backups),
    Route("/cluster/backups/new", _start, methods=["POST"]),
    Route("/cluster/backups/download", _download, methods=["POST"]),
)
