"""A node that cannot apply the level of its data refuses it at the start."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tarry.node.assembly import Core
from tarry.replication.clock import SystemClock
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.loop_holds import Holds
from tarry.replication.settings import ReplicationSettings
from tarry.replication.state_machine.levels import AnotherVersion
from tarry.replication.transport.peer_transport import PeerTransport
from tests.node.lone_leader import leader, until
from tests.replication.state_machine.test_levels import bytes_of


async def test_a_journal_of_a_higher_level_is_refused_before_anything_changes(tmp_path: Path) -> None:
    """Though its checkpoint is of before the raise."""
    async with leader(tmp_path, Holds()) as lead:
        await until(lambda: lead.machine.level == 2)  # by itself: every member, this one, can apply it
        config = lead.node.config
        lead.node._core.checkpoints.close = _nothing  # type: ignore[method-assign] # as at a power loss
    held = bytes_of(tmp_path)
    journal = Journal(WriteAheadLog(config.data / "journal"), incarnation=1)
    settings = ReplicationSettings()
    transport = PeerTransport(settings=settings, rng=random.Random())
    try:
        with pytest.raises(AnotherVersion, match=r"the journal in .* of level 2, and this tarry applies 1"):
            Core(config, SystemClock(), journal, transport, settings, applies=1)
    finally:
        journal.close()
    assert bytes_of(tmp_path) == held
    async with leader(tmp_path, Holds()) as again:
        assert again.machine.level == 2


async def _nothing(*, write: bool) -> None:
    """Write no checkpoint."""
