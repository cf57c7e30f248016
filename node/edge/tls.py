"""Certificates for clients and peers: one pair a node, mutual where an authority is named."""

from __future__ import annotations

import ssl

import grpc

from tarry.node.config import Tls
from tarry.replication.transport.interface import PeerTls


def server_credentials(tls: Tls | None) -> grpc.ServerCredentials | None:
    """Return what the server shows, and asks of callers where an authority is named."""
    if tls is None:
        return None
    authority = tls.authority.read_bytes() if tls.authority else None
    pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


def channel_credentials(tls: Tls | None) -> grpc.ChannelCredentials | None:
    """Return what a node shows to other nodes."""
    if tls is None:
        return None
    authority = tls.authority.read_bytes() if tls.authority else tls.certificate.read_bytes()
    return grpc.ssl_channel_credentials(authority, tls.key.read_bytes(), tls.certificate.read_bytes())


def peer_tls(tls: Tls | None) -> PeerTls | None:
    """Return the same for the streams between nodes, which are not gRPC's."""
    if tls is None:
        return None
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(tls.certificate, tls.key)
    client.load_verify_locations(tls.authority or tls.certificate)
    if tls.authority is not None:
        server.load_verify_locations(tls.authority)
        server.verify_mode = ssl.CERT_REQUIRED
    return PeerTls(server, client)
