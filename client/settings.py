"""The client's settings: one frozen value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from tarry.client.tracing import Tracing, tracing_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates as PEM bytes. ``certificate`` and ``private_key`` together give mutual TLS."""

    authorities: bytes | None = None
    certificate: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None
    """Name to expect in the server's certificate, where it is not the address's host."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("TLS: a certificate and its private key go together: give both or neither")
        for name in ("authorities", "certificate", "private_key"):
            pem = getattr(self, name)
            if pem is not None and b"-----BEGIN " not in pem:
                raise ValueError(f"TLS: {name} is not PEM: it has no line that starts with -----BEGIN")

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.authorities, self.private_key, self.certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a client. The values given here are the defaults of ``connect``."""

    servers: tuple[str, ...]
    """Addresses ``host:port`` to start from; others are learned from the cluster."""
    token: str | None = field(default=None, repr=False)
    """Bearer token, sent with every call."""
    tls: Tls | None = None

    deadline_ms: int = 15_000
    """A call with its retries ends by then; less than the nodes' `producer_silent_ms`, which is 5 minutes."""
    attempt_ms: int = 3_000
    """One try of a call, before another node is asked."""
    pace_ms: int = 50
    """Between questions for the leader while there is none."""
    dial: Mapping[str, str] = field(default_factory=dict)
    """Address of a member -> where this client reaches it, if not there (NAT, a proxy)."""
    discover: bool = True
    """Also use members' addresses that were not among ``servers``."""

    in_flight_max: int = 32
    """Requests of one producer without an answer yet; the server remembers the last 64 answers."""
    gather_in_flight_max: int = 4
    """Requests in flight above which single messages wait to share the next one."""
    batch_messages_max: int = 1_000
    batch_bytes_max: int = 512 * 1024
    """Messages and record bytes in one request; larger batches are sent in pieces."""
    gather_bytes_max: int = 512 * 1024
    """Record bytes from which on single messages go in a request without waiting for more."""
    linger_ms: int = 0
    """Time for which a message may wait to share a request; 0: until the event loop's next turn."""
    ack_linger_ms: int = 50
    """How long an ack that nobody awaits may wait for company, a quarter of its lease at most; not at all
    where messages have ordering keys."""
    waiting_messages_max: int = 200_000
    """Single messages of one producer without an answer yet; more are refused at once."""

    receipts: str | Path | None = None
    """Folder in which producers and consumers write down what they saw, for ``tarry.spark``; None: they do
    not."""

    tracing: bool | Tracing = False
    """Trace with OpenTelemetry: schedules and processing are spans, and messages carry their context."""

    keepalive_ms: int = 5_000
    keepalive_timeout_ms: int = 2_000
    """HTTP/2 pings on open streams, so that a dead host is noticed."""
    watch_ms: int = 500
    """Silence of a stream or a call after which another node is asked who leads."""

    def __post_init__(self) -> None:
        if not self.servers:
            raise ValueError("servers: at least one address is needed")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ValueError("token: only printable ASCII characters can be sent")
        if not 1 <= self.in_flight_max <= 32:
            raise ValueError("in_flight_max must be 1 to 32: the server remembers the last 64 answers")
        if self.ack_linger_ms < 0:
            raise ValueError("ack_linger_ms must be 0 or more")
        if self.batch_messages_max < 1 or self.batch_bytes_max < 1:
            raise ValueError("batch_messages_max and batch_bytes_max must be at least 1")
        tracing_of(self.tracing)  # raises here, before anything is sent

    def channel_options(self) -> list[tuple[str, int | str]]:
        """Return gRPC's channel arguments: quick reconnects, keepalive, room for large batches."""
        options: list[tuple[str, int | str]] = [
            ("grpc.keepalive_time_ms", self.keepalive_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.min_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 1_000),
            ("grpc.max_receive_message_length", 64 * 1024 * 1024),
            ("grpc.max_send_message_length", 64 * 1024 * 1024),
        ]
        if self.tls and self.tls.server_name:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return options


def parse_servers(servers: str | Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of ``"host:port,host:port"`` or of a sequence, in order, each once.

    Raises ValueError for an address without a port.
    """
    parts = servers.split(",") if isinstance(servers, str) else servers
    addresses = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"server address {address!r}: expected host:port")
    return addresses
