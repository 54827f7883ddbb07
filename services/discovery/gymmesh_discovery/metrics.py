"""The metrics of a registry and its xDS control plane."""

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
    "Instances removed from the registry because their lease expired.",
)
REGISTRY_WATCHES: Final = gauge("gymmesh_registry_watches", "Open watches of the registry.")
REGISTRY_VIEW_AGE: Final = gauge(
    "gymmesh_registry_view_age_seconds",
    "Seconds since an external registry, such as Consul, last confirmed this list of instances. "
    "0: the list is confirmed.",
)
XDS_STREAMS: Final = gauge("gymmesh_xds_streams", "Open streams of xDS clients.")
XDS_PUSHES: Final = counter(
    "gymmesh_xds_pushes_total",
    "Responses sent to xDS clients, by type (Listener, RouteConfiguration, Cluster,"
    " ClusterLoadAssignment).",
    "type",
)
XDS_PUSH_SECONDS: Final = histogram(
    "gymmesh_xds_push_seconds",
    "Seconds from a change of the registry until a client's stream accepted it, by type.",
    "type",
)
XDS_NACKS: Final = counter(
    "gymmesh_xds_nacks_total", "Responses that xDS clients rejected, by type.", "type"
)
XDS_VIEW_VERSION: Final = gauge(
    "gymmesh_xds_view_version",
    "Version of the xDS resources; increases with every change.",
)
