"""The registry in Consul. Pure: entry.py (what an instance is there), query.py (the rules of
blocking queries) and registry_view.py. client.py calls Consul; registry.py keeps the leases, and
watch.py follows those of all machines.
"""

from gymmesh_discovery.backends.consul.registry import ConsulRegistry, make_client

__all__ = ["ConsulRegistry", "make_client"]
