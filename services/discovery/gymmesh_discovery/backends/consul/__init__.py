"""The registry in Consul. Pure: entry.py (what an instance is there), query.py (the rules of
blocking queries) and view.py. client.py calls Consul; leases.py and watch.py are the two halves of
registry.py.
"""

from gymmesh_discovery.backends.consul.agent import make_client
from gymmesh_discovery.backends.consul.registry import ConsulRegistry

__all__ = ["ConsulRegistry", "make_client"]
