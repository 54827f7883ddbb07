"""An xDS control plane over the registry, for gRPC's own resolver and load balancing.

``names`` and ``catalog`` (what there is) and ``stream`` (what one client subscribed to) decide and
are pure; ``feed`` keeps the catalog in step with a backend; ``servicer`` speaks the protocol.
Needs the extra ``xds``.
"""

__all__ = []
