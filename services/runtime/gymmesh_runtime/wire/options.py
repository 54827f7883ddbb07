"""gRPC options of servers and channels, each with the reason for its value."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Final

from gymmesh_runtime.sizes import MAX_MESSAGE_BYTES

Options = list[tuple[str, int | str]]

#: Under this name a registration says, in whole seconds, how often its server may be pinged.
KEEPALIVE_KEY: Final = "keepalive_s"
#: How often our servers may be pinged, and how often our clients ping at most.
KEEPALIVE_S: Final = 20
# Of servers that say nothing: many gRPC libraries close a connection that is pinged more often
# than once in five minutes. A bit longer, as pings may come closer together than they were sent.
_UNASKED_S: Final = 330

_MOST_CONNECTIONS: Final = 10_000
_LEAST_CONNECTIONS: Final = 16

_COMMON: Final[Options] = [
    # Senders of ours check by themselves (sizes.py).
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Together these keep what runs ahead of a slow reader near 0.1 MB a stream
    # instead of 6 MB.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 65536),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_timeout_ms", 10_000),
    # The longer of the two counts, and by default this one is a minute.
    ("grpc.http2.ping_timeout_ms", 10_000),
]


def server_options() -> Options:
    """Options for every gRPC server of the mesh."""
    return [
        *_COMMON,
        # Up to twice the limit the server refuses by itself, with an ErrorInfo; beyond that gRPC
        # does, with a bare status.
        ("grpc.max_receive_message_length", 2 * MAX_MESSAGE_BYTES),
        # A burst of thousands of streams on one connection is otherwise shed
        # as bare CANCELLED.
        ("grpc.server.max_pending_requests", 100_000),
        ("grpc.server.max_pending_requests_hard_limit", 100_000),
        # Two servers on one port would silently share its connections.
        ("grpc.so_reuseport", 0),
        # Our clients ping every 20 s, which the registration allows.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Connections take a handle each, and cost a stranger nothing: they have a number, a time
        # to shake hands in, and a time after which one without a call is closed. Clients connect
        # again at their next call.
        ("grpc.max_allowed_incoming_connections", _most_connections()),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.max_connection_idle_ms", 30 * 60_000),
        # A caller that is gone without a word is noticed: its streams would be kept for ever.
        ("grpc.keepalive_time_ms", 30_000),
    ]


def _most_connections() -> int:
    """Half of the handles that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft // 2
    return max(_LEAST_CONNECTIONS, min(most, _MOST_CONNECTIONS))


def keepalive_allowed(meta: Mapping[str, str]) -> int | None:
    """How often a server may be pinged, in seconds, according to its registration; None:
    unknown.
    """
    said = meta.get(KEEPALIVE_KEY, "")
    return int(said) if said.isascii() and said.isdecimal() and 0 < len(said) < 6 else None


def channel_options(keepalive_s: int | None = None) -> Options:
    """Options for every channel of the mesh.

    ``keepalive_s``: how often the server may be pinged, the result of `keepalive_allowed`.
    """
    between = _UNASKED_S if keepalive_s is None else max(keepalive_s, KEEPALIVE_S)
    return [
        *_COMMON,
        # The default of 4 MB is less than one long rollout with images.
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        # A dead peer is noticed even when it sends no RST.
        ("grpc.keepalive_time_ms", between * 1000),
        ("grpc.keepalive_permit_without_calls", int(keepalive_s is not None)),
        # How long one attempt to connect may take: a host that drops packets
        # would otherwise hold calls for 20 s.
        ("grpc.min_reconnect_backoff_ms", 5_000),
        # A peer that comes back is found quickly.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Channels of a process would share what they know of an address: a new one to a peer that
        # has just come up would fail at once, for as long as an older one waits to try again.
        ("grpc.use_local_subchannel_pool", 1),
        # Loopback and mesh addresses never go through an HTTP proxy.
        ("grpc.enable_http_proxy", 0),
    ]
