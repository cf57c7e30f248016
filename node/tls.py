"""Certificates for clients and peers: one pair a node, mutual where an authority is named."""

from __future__ import annotations

import grpc

from tarry.node.config import Tls


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
