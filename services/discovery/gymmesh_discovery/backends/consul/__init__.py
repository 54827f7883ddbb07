"""The registry in Consul.

Pure are entry.py (how an instance is stored in Consul), query.py (the rules of blocking queries)
and registry_view.py. client.py calls Consul, registry.py keeps this process's leases, and watch.py
follows the instances of all machines.
"""

from gymmesh_discovery.backends.consul.registry import ConsulRegistry, make_client

__all__ = ["ConsulRegistry", "make_client"]
