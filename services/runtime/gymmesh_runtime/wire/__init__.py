"""How calls travel: channels, the gRPC server and the two kinds of peer."""

from gymmesh_runtime.sizes import KIB
from gymmesh_runtime.wire.channels import PeerChannel
from gymmesh_runtime.wire.direct import DirectPeer
from gymmesh_runtime.wire.health_port import HealthPort
from gymmesh_runtime.wire.mux.calling import call_stream, call_unary
from gymmesh_runtime.wire.mux.calls import IncomingCall
from gymmesh_runtime.wire.mux.connection import MuxConnection
from gymmesh_runtime.wire.mux.exchange import Exchange
from gymmesh_runtime.wire.mux.outbox import OutboxClosed
from gymmesh_runtime.wire.mux.peer import MuxPeer
from gymmesh_runtime.wire.options import KEEPALIVE_KEY, KEEPALIVE_S, keepalive_allowed
from gymmesh_runtime.wire.pacing import SendTimer
from gymmesh_runtime.wire.plain import PlainPeer
from gymmesh_runtime.wire.server import MeshServer
from gymmesh_runtime.wire.unreached import Unreached

__all__ = [
    "KEEPALIVE_KEY",
    "KEEPALIVE_S",
    "KIB",
    "DirectPeer",
    "Exchange",
    "HealthPort",
    "IncomingCall",
    "MeshServer",
    "MuxConnection",
    "MuxPeer",
    "OutboxClosed",
    "PeerChannel",
    "PlainPeer",
    "SendTimer",
    "Unreached",
    "call_stream",
    "call_unary",
    "keepalive_allowed",
]
