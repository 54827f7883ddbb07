"""Collect: many rollouts over one stream to each agent instance. The collector's side.

pool        the agents of a mesh, several instances side by side
stream      the stream to one instance, over any number of connections
connection  what is sent on one connection, in batches; the bounds of a stream
state       what was asked for, what came, what is stored (pure)
metrics     the instruments of the streams
"""

from gymmesh_client.collect_stream.connection import StreamLimits
from gymmesh_client.collect_stream.pool import AgentPool
from gymmesh_client.collect_stream.state import SENT, tried_in_vain_s
from gymmesh_client.collect_stream.stream import CollectStream, check_contract

__all__ = [
    "SENT",
    "AgentPool",
    "CollectStream",
    "StreamLimits",
    "check_contract",
    "tried_in_vain_s",
]
