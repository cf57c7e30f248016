"""The services of a node that leads alone, over a log that the caller applies: without sockets and Raft."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import NodeConfig
from tarry.node.edge.audit import AuditStatus
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.grpc_status import DETAILS_KEY, refusal_in
from tarry.node.edge.leader_calls import LeaderCalls
from tarry.node.keys.keeper import KeyKeeper
from tarry.node.keys.search import KeySearch
from tarry.node.leader.bulk_turn import BulkTurn
from tarry.node.leader.group_moves import GroupMoves
from tarry.node.leader.leadership import NO_LEADER
from tarry.node.ledger.ledger import Ledger
from tarry.node.reload import ReloadStatus
from tarry.node.repair.records import Damage
from tarry.node.services.operator import OperatorService
from tarry.node.services.producer import ProducerService
from tarry.node.services.query import QueryService
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Outcome
from tarry.replication.state_machine.refusal import Refusal


class Ended(Exception):
    """A call was ended with a status."""

    def __init__(self, code: grpc.StatusCode, refusal: Refusal | None) -> None:
        super().__init__(code, refusal)
        self.code = code
        self.refusal = refusal


class _Call:
    """What a handler sees of its call."""

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def time_remaining(self) -> None:
        return None

    async def abort(self, code: grpc.StatusCode, details: str = "", metadata: Any = ()) -> NoReturn:
        raise Ended(code, refusal_in(dict(metadata).get(DETAILS_KEY, b"")))


class _Log:
    """Where the services propose."""

    consensus = SimpleNamespace(state=SimpleNamespace(term=1))

    def __init__(self, commit: Callable[[list[bytes]], list[Outcome]]) -> None:
        self._commit = commit

    async def propose(self, command: bytes, cost_us: int = 0, *, flushed: bool = False) -> Outcome:
        assert cost_us >= 0
        (outcome,) = self._commit([command])
        return outcome

    async def read_barrier(self) -> None:
        """All is applied."""


class _Clock:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._began_ms = now_ms()

    def monotonic_s(self) -> float:
        return (self._now_ms() - self._began_ms) / 1_000

    def wall_ms(self) -> float:
        return self._now_ms()


class Edge:
    """Calls by their paths, answered from a machine."""

    def __init__(
        self,
        config: NodeConfig,
        machine: Machine,
        ledger: Ledger,
        now_ms: Callable[[], int],
        commit: Callable[[list[bytes]], list[Outcome]],
    ) -> None:
        log: Any = _Log(commit)
        time = ClusterTime(_Clock(now_ms))
        nowhere: Any = None
        calls = LeaderCalls(lambda: True, nowhere, nowhere, nowhere, nowhere, nowhere)
        damage = Damage(machine, config.shard)
        keys = KeyKeeper(machine, damage, 1 << 30)
        core: Any = SimpleNamespace(
            config=config,
            machine=machine,
            driver=log,
            time=time,
            leadership=SimpleNamespace(
                delivery=None,
                retention=None,
                lateness=None,
                group_moves=GroupMoves(log),
                bulk_turn=BulkTurn(machine, time),
                not_leader=lambda: NO_LEADER,
            ),
            audit=AuditStatus(),
            reload=ReloadStatus(),
            blocked=dict,
            damage=damage,
            journal=SimpleNamespace(cluster_incarnation=0),
            keys=keys,
            key_search=KeySearch(keys, machine, damage),
            ledger=ledger,
            holds=Holds(),
        )
        kinds = (ProducerService, QueryService, OperatorService)
        self._services = [service(core, Authorizer({}), calls).handlers() for service in kinds]

    async def call(self, path: str, raw: bytes) -> list[bytes]:
        """Return the answers of a call. Raises Ended."""
        details = _Details(path)
        (handler,) = filter(None, (service.service(details) for service in self._services))
        if handler.unary_unary is not None:
            return [await handler.unary_unary(raw, _Call())]
        answers: AsyncIterator[bytes] = handler.unary_stream(raw, _Call())
        return [answer async for answer in answers]


class _Details:
    """Names a method, as grpc.HandlerCallDetails does."""

    invocation_metadata = ()

    def __init__(self, path: str) -> None:
        self.method = path


def config_of(folder: Path, **settings: Any) -> NodeConfig:
    """Return a node's settings."""
    members = {"n1": "127.0.0.1:1"}
    return NodeConfig(node="n1", data=folder, listen="127.0.0.1:1", members=members, **settings)
