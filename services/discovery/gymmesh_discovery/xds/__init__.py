"""An xDS control plane over the registry, for gRPC's own resolver and load balancing.

``names``, ``catalog`` (all resources) and ``stream`` (the subscriptions of one client) decide and
are pure. ``feed`` updates the catalog from a backend. ``servicer`` implements the protocol. Needs
the extra ``xds``.
"""

__all__ = []
