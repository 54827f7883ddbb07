"""The agent's side of Collect, which carries many rollouts of a collector over one stream.

server       all collectors: hello, resumption, free places, load, shutdown
collector    one collector's connection and the tasks of its attempts
stream       one collector's stream: its requests, and the messages to send (pure)
run_queue    the attempts of one stream, waiting and running (pure)
send_buffer  the events of one stream, until they are acknowledged (pure)
errors       the errors that a collector gets
"""

from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_agent.collect_stream.errors import draining
from gymmesh_agent.collect_stream.server import CollectServer

__all__ = [
    "CollectConfig",
    "CollectServer",
    "draining",
]
