"""The registry in Consul: entry.py (what an instance is there), query.py (the rules of blocking
queries) and view.py are pure; registry.py puts them together; client.py calls Consul.
"""

from gymmesh_discovery.backends.consul.registry import ConsulRegistry, make_client

__all__ = ["ConsulRegistry", "make_client"]
