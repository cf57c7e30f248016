"""Certificates for clients and peers: one pair a node, mutual where an authority is named.

New ones count from the next handshake on, and what is open stays: gRPC's server asks for them at each, and
the streams between nodes take them from `PeerTls`. Channels to other nodes are opened anew.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Self

import grpc

from tarry.node.config import Tls
from tarry.replication.transport.interface import PeerTls


@dataclass(frozen=True, slots=True)
class Certificates:
    """Contents of the files of `[tls]` when they were read."""

    key: bytes = field(repr=False)
    certificate: bytes
    authority: bytes | None
    """Of clients and nodes, who have to show a certificate of it; None: nobody has to."""
    peers: PeerTls = field(repr=False, compare=False)
    """The same for the streams between nodes, which are not gRPC's."""

    @classmethod
    def read(cls, tls: Tls) -> Self:
        """Read them. Raises OSError (ssl.SSLError is one): they do not go together, or are not there."""
        authority = tls.authority.read_bytes() if tls.authority else None
        return cls(tls.key.read_bytes(), tls.certificate.read_bytes(), authority, _peer_tls(tls))

    def for_channels(self) -> grpc.ChannelCredentials:
        """Return what a node shows to other nodes."""
        return grpc.ssl_channel_credentials(self.authority or self.certificate, self.key, self.certificate)

    def for_server(self) -> grpc.ServerCertificateConfiguration:
        """Return what the server shows, and whom it asks."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.authority)


class ServerCertificates:
    """The certificates of gRPC's server, which may be renewed; to be kept for as long as it runs."""

    def __init__(self, made: Certificates) -> None:
        self._renewed: grpc.ServerCertificateConfiguration | None = None
        self.credentials = grpc.dynamic_ssl_server_credentials(
            made.for_server(),
            self._fetch,  # type: ignore[arg-type] # may return None, as gRPC's documents say
            require_client_authentication=made.authority is not None,
        )

    def renew(self, made: Certificates) -> None:
        """Show others from the next handshake on."""
        self._renewed = made.for_server()

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the new ones once, by a thread of gRPC's before each handshake; None: no others."""
        renewed, self._renewed = self._renewed, None
        return renewed


def read(tls: Tls | None) -> Certificates | None:
    """Return the certificates, None where there is no TLS. Raises OSError."""
    return Certificates.read(tls) if tls is not None else None


def channel_credentials(made: Certificates | None) -> grpc.ChannelCredentials | None:
    """Return what a node shows to other nodes, None where there is no TLS."""
    return made.for_channels() if made is not None else None


def _peer_tls(tls: Tls) -> PeerTls:
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(tls.certificate, tls.key)
    client.load_verify_locations(tls.authority or tls.certificate)
    if tls.authority is not None:
        server.load_verify_locations(tls.authority)
        server.verify_mode = ssl.CERT_REQUIRED
    return PeerTls(server, client)
