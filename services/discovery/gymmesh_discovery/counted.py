"""How many instances of each kind and health a registry lists, as a metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_runtime import metrics

#: The contract's kinds. An instance may register any kind; a label takes no made-up values.
_KINDS: Final = frozenset(
    f"gymmesh.{noun}.v1.{noun.capitalize()}Service"
    for noun in ("agent", "discovery", "model", "resource", "run", "verify")
)
_OTHER: Final = "other"
_UNKNOWN: Final = "unknown"
_HEALTH: Final = {
    discovery_pb2.HEALTH_SERVING: "serving",
    discovery_pb2.HEALTH_NOT_SERVING: "not_serving",
    discovery_pb2.HEALTH_DRAINING: "draining",
}


def count_instances(instances: Iterable[discovery_pb2.Instance]) -> None:
    """Sets the metric; kinds that the contract lacks are counted together."""
    counts: Counter[tuple[str, ...]] = Counter(
        (one.service if one.service in _KINDS else _OTHER, _HEALTH.get(one.health, _UNKNOWN))
        for one in instances
    )
    metrics.INSTANCES.replace(counts)
