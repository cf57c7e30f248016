"""A node's process: from its data, as it is found, to the end."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import resource
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog

from tarry.node.app import Node
from tarry.node.beside import gateway_beside
from tarry.node.clock import precise_loop
from tarry.node.config import NodeConfig
from tarry.node.config_source import ConfigSource
from tarry.node.edge.forwarder import Forwarder
from tarry.node.edge.tls import channel_credentials, read
from tarry.node.leader.leadership import UnitsNotMended
from tarry.node.locked_code import Locked, lock_code
from tarry.node.loop_watchdog import Collections, LongHolds
from tarry.node.recovery import state_replacement
from tarry.node.recovery.recover_alone import Survey, recover_alone
from tarry.node.recovery.rejoin import Phase, Rejoining, interrupted, phase, set_aside
from tarry.node.recovery.state_replacement import StateReplacement, peers_of
from tarry.proto.files import make_folder
from tarry.replication.clock import SystemClock
from tarry.replication.driver.first_start import JournalLost
from tarry.replication.driver.install_snapshot import StateMismatch
from tarry.replication.journal.power_loss import boot_id, is_lost
from tarry.replication.journal.records import JournalDamaged
from tarry.replication.loop_holds import Holds
from tarry.replication.settings import ReplicationSettings
from tarry.replication.snapshot.state_folder import PointerDamaged
from tarry.replication.state_machine.checkpoint import CheckpointDamaged
from tarry.replication.state_machine.levels import AnotherVersion
from tarry.replication.state_machine.ready_queue import QueueDamaged
from tarry.replication.transport.grpc_options import channel_options
from tarry.wheel.state import WheelDamaged

log = structlog.get_logger()

DAMAGED: Final = (
    JournalDamaged,
    CheckpointDamaged,
    PointerDamaged,
    WheelDamaged,
    QueueDamaged,
    UnitsNotMended,
    StateMismatch,
    JournalLost,
)

ANY_SIZE: Final = [
    *(dict(channel_options(ReplicationSettings())) | {"grpc.max_receive_message_length": -1}).items()
]
"""Channel options for the list of a state's files."""


UMASK: Final = 0o077
"""Messages, log, checkpoints and ledger are for the node's own user alone."""
OWN_FOLDERS: Final = ("journal", "state-*", "ledger", "damaged-*")
"""Of the data folder. It itself may be one that others need, such as a mounted volume."""


class DataDamaged(Exception):
    """The data is not what was written, or not this version's; the message says what to do."""


class _StateDamaged(Exception):
    """The state is damaged, its journal not: this program starts anew, and takes the state from a peer."""


class DataInUse(Exception):
    """The data folder cannot be had: another node runs with it, or this user may not write it."""


def serve(config: NodeConfig, *, rejoin: bool = False, source: ConfigSource | None = None) -> None:
    """Run a node in this process until SIGTERM or SIGINT.

    ``source``: where certificates and tokens are read again on SIGHUP; None: nowhere.
    ``rejoin``: the data was lost, or is not to be trusted: take everything anew from the others.
    Raises DataDamaged, DataInUse, CannotListen.
    """
    may_open_all()
    if config.lock_code:
        keep_code()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is read again, there is nothing to read again
    hold(config.data)
    if rejoin:
        _set_aside(config, "as asked")
    elif interrupted(config.data):
        _set_aside(config, "the rest, for it was interrupted")
    if _lost_power(config) and not config.members.keys() - {config.node}:
        raise DataDamaged(
            f"the machine lost its power before all of {config.data}/journal was flushed (durability async). "
            "This is its only copy: tarry node --recover-alone says what is left, and goes on with it"
        )
    try:
        holds = Holds()
        with asyncio.Runner(loop_factory=partial(precise_loop.new, holds)) as runner:
            runner.run(_serve(config, holds, source))
    except AnotherVersion as error:
        raise DataDamaged(str(error)) from error
    except _StateDamaged:
        _start_anew()
    except DAMAGED as damage:
        if config.damaged_data == "refuse" or len(config.members) < 2:
            raise DataDamaged(_what_to_do(config, damage)) from damage
        _set_aside(config, str(damage))
        _start_anew()


def hold(data: Path) -> None:
    """Keep a data folder for this process until it ends. Raises DataInUse."""
    keep_private(data)
    try:
        make_folder(data)
        folder = os.open(data, os.O_RDONLY)
        if not os.access(data, os.W_OK | os.X_OK):
            raise PermissionError(f"{data} is not this user's to write")
    except OSError as error:
        raise DataInUse(f"data: {error}; name a folder that this user may write") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataInUse(f"{data} is another running node's: two at once would destroy it") from None


def go_alone(config: NodeConfig, agreed: Callable[[Survey], bool]) -> Survey | None:
    """Let a survivor be a cluster by itself from its next start on; None: it was not agreed.

    Raises RecoveryRefused, DataDamaged, DataInUse.
    """
    hold(config.data)
    try:
        return recover_alone(config, agreed, secrets.randbits(64) or 1, SystemClock())
    except (*DAMAGED, AnotherVersion) as damage:
        raise DataDamaged(
            f"the data in {config.data} is damaged: {damage}. Recover another survivor, or restore a backup"
        ) from damage


def _start_anew() -> NoReturn:
    """Replace this process by a new one, in which nothing of the old data is open."""
    sys.stderr.flush()
    arguments = (argument for argument in sys.orig_argv[1:] if argument != "--rejoin")
    os.execv(sys.executable, [sys.executable, *arguments])


def keep_private(data: Path) -> None:
    """Let nobody else read what this process and its children create, nor the data that is there."""
    os.umask(UMASK)
    for pattern in OWN_FOLDERS:
        for folder in data.glob(pattern):
            _close(folder)


def _close(folder: Path) -> None:
    mode = folder.stat().st_mode & 0o777
    if not mode & UMASK:
        return
    try:
        folder.chmod(mode & ~UMASK)
    except PermissionError:
        log.warning("others may read this folder: chmod go= it", folder=str(folder), mode=f"{mode:o}")


def may_open_all() -> None:
    """Let this process open as many files as the system allows it, rather than what a shell is given."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log.info("open files", at_most=hard, at_start=soft)


def keep_code() -> None:
    """Keep in memory what is used of the program and its libraries, as far as the system allows."""
    try:
        locked = lock_code()
    except (OSError, AttributeError) as error:  # no /proc, or a libc without mlock2
        locked = Locked(0, 0, str(error))
    if locked.why:
        log.info("code locked in part", bytes=locked.size_bytes, left_bytes=locked.left_bytes, why=locked.why)
    else:
        log.info("code locked", bytes=locked.size_bytes)


def _what_to_do(config: NodeConfig, damage: Exception) -> str:
    lost = (
        "its only copy: restore a backup"
        if len(config.members) < 2
        else (
            'the others have it all: start the node once with --rejoin, or set damaged_data = "rejoin", '
            "and it is set aside and taken anew from them"
        )
    )
    return f"the data in {config.data} is damaged, and nothing of it is served: {damage}. This is {lost}"


def _lost_power(config: NodeConfig) -> bool:
    return is_lost(config.data / "journal", boot_id(config.boot_id_file))


def _set_aside(config: NodeConfig, why: str) -> None:
    aside = set_aside(config.data, config.node)
    log.error("data set aside: rejoins the cluster without it", why=why, aside=str(aside))


async def _serve(config: NodeConfig, holds: Holds, source: ConfigSource | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if _lost_power(config) and not await _until_stopped(
        config, stopping, lambda via: Rejoining(config, via).leave_without_power()
    ):
        return
    leaves = phase(config.data) is Phase.LEAVING
    if leaves and not await _until_stopped(config, stopping, lambda via: Rejoining(config, via).leave()):
        return
    replaced = state_replacement.is_marked(config.data)
    if replaced and not await _until_stopped(
        config, stopping, lambda via: StateReplacement(config, via).run()
    ):
        return
    node = Node(config, holds=holds, source=source)
    loop.add_signal_handler(signal.SIGHUP, node.reload)
    gc.collect()
    gc.freeze()  # what is here now stays: to look through it again held the event loop up for 30 to 90 ms
    gc.callbacks.append(Collections(holds))
    holds.on_long = LongHolds().log
    holds.forget()  # opening the data is no turn that anybody waits for
    stop = asyncio.ensure_future(_stop(node, stopping))
    try:
        async with gateway_beside(config):
            await node.run()
    except (WheelDamaged, QueueDamaged) as damage:
        if replaced or not peers_of(config, node.journal) or phase(config.data) is not None:
            raise
        state_replacement.mark(config.data)
        log.error("state damaged: taken from a peer, the journal stays", damage=str(damage))
        if stopping.is_set():
            return  # the next start takes it
        raise _StateDamaged from damage
    finally:
        stop.cancel()


async def _stop(node: Node, stopping: asyncio.Event) -> None:
    await stopping.wait()
    node.stop()


async def _until_stopped(
    config: NodeConfig, stopping: asyncio.Event, do: Callable[[Forwarder], Coroutine[Any, Any, None]]
) -> bool:
    """Return whether something that has to be done before the node runs ended before it was told to stop."""
    forwarder = Forwarder(channel_credentials(read(config.tls)), ANY_SIZE, config.dial)
    doing = asyncio.ensure_future(do(forwarder))
    told = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((doing, told), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
        return doing.done()
    finally:
        doing.cancel()
        told.cancel()
        await asyncio.wait((doing, told))
        await forwarder.close()
