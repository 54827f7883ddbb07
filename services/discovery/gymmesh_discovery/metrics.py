"""What a registry and its xDS control plane count."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge, histogram

INSTANCES: Final = gauge(
    "gymmesh_instances",
    "Instances in the registry, by service and health (serving, draining, not_serving, unknown).",
    "service health",
)
REGISTRY_EXPIRED: Final = counter(
    "gymmesh_registry_expired_total",
    "Instances taken off the registry because nobody renewed their lease.",
)
REGISTRY_WATCHES: Final = gauge("gymmesh_registry_watches", "Watches of the registry open.")
REGISTRY_VIEW_AGE: Final = gauge(
    "gymmesh_registry_view_age_seconds",
    "How long a registry outside, such as Consul, has not confirmed this view of it; 0: it does.",
)
XDS_STREAMS: Final = gauge("gymmesh_xds_streams", "Streams of xDS clients open.")
XDS_PUSHES: Final = counter(
    "gymmesh_xds_pushes_total",
    "Responses sent to xDS clients, by type (Listener, RouteConfiguration, Cluster,"
    " ClusterLoadAssignment).",
    "type",
)
XDS_PUSH_SECONDS: Final = histogram(
    "gymmesh_xds_push_seconds",
    "Time from a change of the registry until a client's stream has taken it, in seconds, by type.",
    "type",
)
XDS_NACKS: Final = counter(
    "gymmesh_xds_nacks_total", "Responses that xDS clients refused, by type.", "type"
)
XDS_VIEW_VERSION: Final = gauge(
    "gymmesh_xds_view_version",
    "The version of what xDS clients are offered; grows with every change.",
)
