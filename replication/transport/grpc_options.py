"""gRPC options between peers, set on both sides, or one ends the other's pings."""

from __future__ import annotations

from tarry.replication.settings import ReplicationSettings


def channel_options(settings: ReplicationSettings) -> list[tuple[str, int]]:
    """Return the options of channels to peers; `server_options` is the other side."""
    return [
        ("grpc.max_send_message_length", settings.message_bytes_max),
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.keepalive_time_ms", 2_000),  # a peer that vanished without a word
        ("grpc.keepalive_timeout_ms", 1_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.bdp_probe", 1),
        ("grpc.initial_reconnect_backoff_ms", 20),
        ("grpc.min_reconnect_backoff_ms", 20),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.client_idle_timeout_ms", 5_000),  # asked once, then streams of our own: no pings for nothing
        ("grpc.enable_http_proxy", 0),
    ]


def server_options(settings: ReplicationSettings) -> list[tuple[str, int]]:
    """Return the options that the node's server needs for peers' calls."""
    return [
        ("grpc.max_send_message_length", settings.message_bytes_max),
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.so_reuseport", 0),
    ]
