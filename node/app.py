"""A node: the whole object graph, from the data folder up to the one port."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import grpc
import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer
from prometheus_client.metrics_core import Metric

from tarry.node.assembly import Core
from tarry.node.clock.guard import ClockGuard
from tarry.node.config import NodeConfig
from tarry.node.config_source import ConfigSource
from tarry.node.edge import connection_limits, request_bytes
from tarry.node.edge.audit import Audit
from tarry.node.edge.auth import Authorizer, unknown_node
from tarry.node.edge.blocked_ports import BlockedPortLog
from tarry.node.edge.call_admission import Entrance
from tarry.node.edge.forwarded_caller import NODE_KEY
from tarry.node.edge.forwarder import Forwarder
from tarry.node.edge.grpc_types import CallContext
from tarry.node.edge.leader_calls import LeaderCalls
from tarry.node.edge.peer_auth import PeerCalls, log_strangers, peer_gate
from tarry.node.edge.tls import Certificates, ServerCertificates, channel_credentials, read
from tarry.node.failures import Failures
from tarry.node.leader.leadership import NO_LEADER
from tarry.node.ledger.closer import Closer
from tarry.node.monitoring.families import families
from tarry.node.monitoring.pages import pages
from tarry.node.monitoring.port import Port
from tarry.node.monitoring.readings import read as read_metrics
from tarry.node.recovery.rejoin import Phase, Rejoining, phase
from tarry.node.recovery.rejoin_service import MembershipService
from tarry.node.recovery.thinning import Thinning
from tarry.node.reload import Reload
from tarry.node.repair.peer_records import PeerRecords, RecordService
from tarry.node.repair.record_reads import RecordReads
from tarry.node.repair.scrubber import Scrub
from tarry.node.services.consumer import ConsumerService
from tarry.node.services.operator import OperatorService
from tarry.node.services.producer import ProducerService
from tarry.node.services.query import QueryService
from tarry.node.services.recurring import RecurringService
from tarry.node.services.schedule_request import KEYS_OF_MESSAGE
from tarry.proto import grpc_server
from tarry.proto.bearer_token import PeerTokens
from tarry.proto.files import make_folder
from tarry.proto.reasons import Reason
from tarry.proto.version import VERSION
from tarry.replication.blocking import in_own_thread
from tarry.replication.clock import Clock, SystemClock, to_next
from tarry.replication.driver.adaptive_writes import AdaptiveWrites
from tarry.replication.errors import TransferRefused
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.lmdb_takeover import open_log
from tarry.replication.journal.power_loss import boot_id
from tarry.replication.loop_holds import Holds
from tarry.replication.settings import ReplicationSettings
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.status import Dropped
from tarry.replication.transport.grpc_options import channel_options, server_options
from tarry.replication.transport.peer_transport import PeerTransport
from tarry.wheel.cached_reads import pread_cached

log = structlog.get_logger()

HEALTH_PERIOD_S: Final = 1.0
DROPPED_PERIOD_S: Final = 10.0
STOP_GRACE_S: Final = 2.0
STOP_TRANSFER_MS: Final = 2_000
COMMAND_OVERHEAD_BYTES: Final = 64 << 10
SERVICES: Final = (
    "tarry.v1.ProducerService",
    "tarry.v1.ConsumerService",
    "tarry.v1.QueryService",
    "tarry.v1.OperatorService",
    "tarry.v1.RecurringService",
)


class CannotListen(Exception):
    """The address of ``listen`` cannot be had: end what has it, or listen elsewhere."""


class Node:
    """One node of a cluster. ``run`` until ``stop``, or until something fails that must end the process."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock | None = None,
        *,
        holds: Holds | None = None,
        source: ConfigSource | None = None,
    ) -> None:
        """Open the data folder and recover; certificates and tokens are read again from ``source``.

        Raises:
            JournalDamaged, CheckpointDamaged, WheelDamaged, QueueDamaged: the node must not start with
                this data; restore it from a peer.
            StateMismatch: journal and checkpoint do not belong together.
        """
        self.config, clock = config, clock or SystemClock()
        make_folder(config.data)
        settings = _replication_settings(config)
        self._certificates = read(config.tls)
        credentials = channel_credentials(self._certificates)
        self._peer_tls = self._certificates.peers if self._certificates is not None else None
        self._peer_tokens = PeerTokens(config.peer_token, config.peer_tokens_accepted)
        self._gate = peer_gate(config.tls, lambda node: self.driver.is_peer(node))  # noqa: PLW0108 made below
        self.journal = Journal(
            open_log(config.data / "journal", boot=boot_id(config.boot_id_file)),
            incarnation=random.getrandbits(63) or 1,
        )
        self._transport = PeerTransport(
            settings=settings,
            rng=random.Random(),
            credentials=credentials,
            tls=self._peer_tls,
            tokens=self._peer_tokens,
            dial=config.dial,
            gate=self._gate,
            on_strangers=log_strangers,
        )
        if phase(config.data) is Phase.JOINING:  # no member: what the others say makes it one
            others = {node: address for node, address in config.members.items() if node != config.node}
            config = config.model_copy(update={"members": others})
        core = Core(
            config,
            clock,
            self.journal,
            self._transport,
            settings,
            write_journal=AdaptiveWrites(in_own_thread("journal"), time.monotonic),
            reads=partial(RecordReads, pread=pread_cached, run_blocking=in_own_thread("read ahead")),
            look_up=in_own_thread("key lookups"),
            closer=Closer(apart=True),
            holds=holds,
        )
        self._core = core
        self.time, self.machine = core.time, core.machine
        self.driver, self.leadership = core.driver, core.leadership
        self._settings = settings
        options = channel_options(settings)
        self._forwarder = Forwarder(credentials, options, config.dial, self._peer_tokens)
        self._health = HealthServicer()
        self._authorizer = Authorizer(config.tokens)
        self._audit = Audit(
            config.audit,
            config.node,
            self._authorizer,
            self._is_node,
            core.audit,
            in_own_thread("audit"),
            clock.wall_ms,
        )
        self._server = self._make_server()
        self._metrics = Port(config.metrics, pages(self._families, self._not_ready), core.holds)
        self._reload: Reload | None = None
        if source is not None:
            self._reload = Reload(source, self.config, self._renew, core.reload, clock.wall_ms)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serve until ``stop``; raises what must end the process."""
        config, damage, failures = self.config, self._core.damage, Failures()
        records = PeerRecords(self._forwarder, lambda: self.driver.cluster, config.node, self._peer_tokens)
        host, port = config.peer_address
        try:
            await self._transport.listen(host.strip("[]"), port)
        except OSError as error:
            raise CannotListen(
                f"cannot listen for peers at {host}:{port}: {error}; "
                f'set peer_listen = "{host}:PORT" to a port that is free and open to the other nodes'
            ) from None
        await self._audit.begin(VERSION)
        await self._server.start()
        log.info("listening", address=self.config.listen, data=str(self.config.data))
        await self._listen_for_metrics()
        tasks = [
            asyncio.create_task(self._core.holds.steps(name, work), name=name)
            for name, work in {
                "consensus": self.driver.run(),
                "leadership": self.leadership.run(),
                "checkpoints": self._core.checkpoints.run(),
                "ledger": self._core.ledger.run(),
                "keys": self._core.keys.run(),
                "key writes": self._core.keys.run_writes(),
                "health": self._report_health(),
                "dropped": self._log_dropped(),
                "durability": self._log_durability(),
                "clock": ClockGuard(self.driver, self.time, config.dispatch).run(),
                "repair": damage.run(self._connected, records.fetch),
                "index repair": damage.indices.run(self._connected, records.fetch_index),
                "far repair": damage.far.run(),
                "queue repair": damage.queues.run(self._connected, records.fetch_ready),
                "scrub": Scrub(self.machine, damage, config.dispatch).run(),
                "thinning": Thinning(self.machine, self._core.checkpoints, damage, config.dispatch).run(),
                "rejoining": self._rejoin(),
                "failures": failures.watch(),
                "reload": self._reload.run() if self._reload is not None else self._stopping.wait(),
                "stop": self._stopping.wait(),
            }.items()
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if failure := task.exception():
                    log.critical("the node ends: it failed", at=task.get_name(), why=repr(failure))
                task.result()
        finally:
            await self._shut_down(tasks)

    def stop(self) -> None:
        """End ``run`` gracefully: leadership is transferred, calls may end, a checkpoint is written."""
        self._stopping.set()

    def reload(self) -> None:
        """Read certificates and tokens again, soon."""
        if self._reload is not None:
            self._reload.ask()

    def _renew(self, config: NodeConfig, certificates: Certificates | None) -> int:
        """Have tokens and, where there are others, certificates in force; return how many streams ended."""
        self._peer_tokens.renew(config.peer_token, config.peer_tokens_accepted)
        does_less = self._authorizer.renew(config.tokens)
        server, peers = self._server_certificates, self._peer_tls
        if certificates is not None and certificates != self._certificates and server and peers:
            self._certificates = certificates
            server.renew(certificates)
            peers.renew(certificates.peers)
            self._transport.renew(certificates.for_channels())
            self._forwarder.renew(certificates.for_channels())
        return sum(entrance.end_streams(does_less) for entrance in self._entrances)

    def _is_node(self, context: CallContext) -> bool:
        """Return whether who forwards a call has shown that it is a node."""
        names = self._gate.names(context)
        known = names is None or any(map(self.driver.is_peer, names))
        return known and self._peer_tokens.take(context.invocation_metadata(), NODE_KEY)

    def _make_server(self) -> grpc.aio.Server:
        config, core, authorizer = self.config, self._core, self._authorizer
        calls = LeaderCalls(
            self.leadership.serves,
            self.leadership.not_leader,
            self.leadership.wait.until_led,
            self._forwarder,
            self.leadership.stop_for,
            core.damage.indices.report_path,
            core.damage.queues.report,
        )
        records = RecordService(self.machine, PeerCalls(lambda: self.driver.cluster, self._gate))
        # also for those of another incarnation, whose data is set aside
        peers = PeerCalls(lambda: config.cluster, self._gate)
        membership = MembershipService(self.driver, calls.not_here, peers)
        self._producers = ProducerService(core, authorizer, calls)
        others = (
            ConsumerService(core, authorizer, calls, self._is_node),
            QueryService(core, authorizer, calls),
            OperatorService(core, authorizer, calls, self._audit),
            RecurringService(core, authorizer, calls),
        )
        api = [service.handlers() for service in (self._producers, *others)]
        nodes = (records.handlers(), membership.handlers(), self._transport.servicer.handler())
        health = connection_limits.health_and_reflection(self._health, SERVICES)
        bounds = config.connections
        options = [*server_options(self._settings), *connection_limits.options(bounds)]
        server = grpc_server.server(options=options)
        entrances = (  # each with its own bounds: strangers at one leave the others free
            Entrance(
                api,
                lambda _, metadata: authorizer.unknown(metadata),
                bounds,
                request_bytes.of_clients(config.limits),
                core.holds,
            ),
            Entrance(
                nodes,
                lambda _, metadata: unknown_node(self._peer_tokens, metadata),
                bounds,
                request_bytes.of_nodes,
                core.holds,
            ),
            Entrance(health, connection_limits.admits_health(authorizer), bounds),
        )
        server.add_generic_rpc_handlers(entrances)
        self._entrances = (entrances[0], entrances[2])  # those with clients' streams
        certificates = self._certificates
        self._server_certificates = ServerCertificates(certificates) if certificates is not None else None
        try:
            bound = (
                server.add_insecure_port(config.listen)
                if self._server_certificates is None
                else server.add_secure_port(config.listen, self._server_certificates.credentials)
            )
        except RuntimeError:  # by newer gRPC; older ones return 0
            bound = 0
        if bound == 0:
            raise CannotListen(
                f"cannot listen on {config.listen}: "
                "the port is taken, the address not this machine's, or the TLS files no certificate and key"
            )
        if self._server_certificates is None and not _is_loopback(config.listen):
            log.warning("no TLS on an address that others can reach", listen=config.listen)
        return server

    async def _families(self) -> Iterable[Metric]:
        return families(self._core, await read_metrics(self._core), self._producers.streams)

    async def _listen_for_metrics(self) -> None:
        listen = self.config.metrics.listen
        if not listen:
            return
        try:
            address = await self._metrics.listen()
        except (OSError, UnicodeError) as error:  # one of them where it cannot be the name of a machine
            await self._server.stop(None)
            raise CannotListen(
                f"cannot listen for metrics at {listen}: {error}; "
                'set metrics.listen = "HOST:PORT" to a port of this machine that is free, or leave it out'
            ) from None
        log.info("metrics", address=address)
        if not _is_loopback(listen):
            log.warning("metrics readable by whoever reaches their address", listen=listen)

    def _not_ready(self) -> str:
        """Say why this node would not serve a call; empty: it would, itself or through the leader."""
        if self._stopping.is_set():
            return "this node stops"
        return "" if self.leadership.serves() or self.leadership.hears_leader() else NO_LEADER.text

    async def _shut_down(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if self.driver.may_serve() and not tasks[0].done():
            # First of all: while open streams are given their grace, another node serves.
            self._core.ledger.leadership("transfer", self.driver.status().term)
            with contextlib.suppress(TransferRefused):
                await self.driver.transfer(None, STOP_TRANSFER_MS)
        if self.leadership.delivery is not None:
            self.leadership.delivery.end(Refusal(Reason.SHUTTING_DOWN, "this node stops", retry_ms=100))
        self._producers.end_streams()
        await self._server.stop(STOP_GRACE_S)
        await self._metrics.close()  # until here it says that this node stops
        await self.driver.stop()
        consensus, *others = tasks
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        if not consensus.done():
            await consensus
        await self._forwarder.close()
        failed = any(not task.cancelled() and task.exception() is not None for task in tasks)
        await self._core.checkpoints.close(write=not failed)
        await self._core.ledger.close()
        self.machine.close()
        self.journal.close()
        log.info("stopped")

    async def _rejoin(self) -> None:
        """Become a member again after the data was lost; then nothing more."""
        if phase(self.config.data) is Phase.JOINING:
            await Rejoining(self.config, self._forwarder).join(self.journal.incarnation)
        await asyncio.Event().wait()

    def _connected(self) -> list[str]:
        """Return the addresses of the peers that are in reach."""
        return [peer.address for _, peer in sorted(self.driver.status().peers.items()) if peer.connected]

    async def _report_health(self) -> None:
        """Report to the health service whether there is a leader."""
        shown = None
        while True:
            serving = self.driver.consensus.state.leader is not None
            if serving is not shown:
                shown = serving
                state = health_pb2.HealthCheckResponse.ServingStatus
                value = state.SERVING if serving else state.NOT_SERVING
                for service in ("", *SERVICES):
                    await self._health.set(service, value)
            await asyncio.sleep(to_next(HEALTH_PERIOD_S, asyncio.get_running_loop().time()))

    async def _log_durability(self) -> None:
        """Log from when on a loss of power may take something back, and how much of it."""
        told = 0
        while True:
            flush_ms = self.machine.queues.defaults.flush_ms
            if flush_ms and flush_ms != told:
                log.warning("durability async", flush_ms=flush_ms)
            elif told and not flush_ms:
                log.info("durability sync")
            told = flush_ms
            await asyncio.sleep(to_next(HEALTH_PERIOD_S, asyncio.get_running_loop().time()))

    async def _log_dropped(self) -> None:
        """Log whose messages count for nothing, and whose port is out of reach, now and then."""
        told: dict[tuple[str, Dropped], int] = {}
        ports, loop = BlockedPortLog(), asyncio.get_running_loop()
        while True:
            ports.look(self._transport.blocked(), loop.time())
            for (peer, why), count in self.driver.dropped.items():
                if count != told.get((peer, why)):
                    log.warning("messages dropped", peer=peer, why=why.value, messages=count)
            told = dict(self.driver.dropped)
            for peer, answer in self._transport.former.items():
                log.error("of another incarnation of the cluster", peer=peer, answer=answer)
            if self.driver.waits_for:
                names = ", ".join(self.driver.waits_for)
                log.warning("no journal here: takes part once these say that it never had one", nodes=names)
            await asyncio.sleep(to_next(DROPPED_PERIOD_S, loop.time()))


def _is_loopback(listen: str) -> bool:
    return listen.startswith(("127.", "localhost", "[::1]"))


def _replication_settings(config: NodeConfig) -> ReplicationSettings:
    columns = 16 + 16 + 12 * KEYS_OF_MESSAGE  # bytes a message of what the leader adds: columns, times, keys
    command_bytes = config.limits.batch_bytes_max + columns * config.limits.batch_messages_max
    command_bytes_max = command_bytes + COMMAND_OVERHEAD_BYTES
    return replace(
        ReplicationSettings(),
        cluster=config.cluster,
        retained_bytes_max=config.dispatch.journal_retained_bytes,
        snapshot_retained_bytes_max=config.dispatch.journal_snapshot_bytes,
        **config.consensus.model_dump(),
        command_bytes_max=command_bytes_max,
        append_bytes_max=command_bytes_max + (1 << 20),
        peer_ticket_ms=config.peer_ticket_ms,
        message_bytes_max=2 * command_bytes_max + (4 << 20),
    )
