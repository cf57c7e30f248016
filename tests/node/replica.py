"""A state machine and its ledger, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tarry.node.config import LedgerSettings, NodeConfig
from tarry.node.ledger.ledger import Ledger
from tarry.node.ledger.went_alone import marked
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.replication.commands import NOW_MS


class Replica:
    """A state machine and its ledger, as a node has them; its time is set by the test."""

    def __init__(self, folder: Path, node: str = "n1", **settings: Any) -> None:
        self.now_ms = NOW_MS
        self.config = NodeConfig(
            node=node,
            data=folder,
            listen="127.0.0.1:1",
            members={node: "127.0.0.1:1"},
            ledger=LedgerSettings(disk_free_bytes_min=1, **settings),
        )
        self.machine = Machine(folder / "state", MachineSettings())
        self.machine.events.wanted = True
        self.ledger = Ledger(
            self.config, self.machine.applied_index, lambda: self.now_ms, alone=marked(folder, 0)
        )

    def apply(self, *commands: bytes, term: int = 1) -> None:
        index = self.machine.applied_index + 1
        self.machine.apply(index, term, commands)
        self.ledger.applied(index, term, self.machine.take_events(), self.machine.queues)
