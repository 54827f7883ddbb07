"""Collect: many rollouts over one stream to each agent instance. The collector's side.

book      what was asked for, what came, what is stored (pure)
link      one connection: what leaves on it, in batches
stream    the stream to one agent instance, over any number of connections
pool      the agents of a mesh, several instances side by side
"""

from gymmesh_client.collect_stream.book import EventSink, StreamLimits
from gymmesh_client.collect_stream.pool import AgentPool, CollectingAgent
from gymmesh_client.collect_stream.stream import CollectStream

__all__ = ["AgentPool", "CollectStream", "CollectingAgent", "EventSink", "StreamLimits"]
