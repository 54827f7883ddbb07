"""A model service that registers in Consul by itself: python -m tests.scale.xds_bench.instance.

Its arguments are Consul's address, the name of the model and its own id, which answers every call.
Consul's gRPC health check is that of its registration. Prints its address when it serves.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from gymmesh_discovery.backends.consul import ConsulRegistry
from gymmesh_discovery.config import ConsulConfig
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.serve import ServeOptions, serve
from gymmesh_runtime.serving.loop import run
from gymmesh_runtime.serving.service import Service
from tests.xds.plane import MODEL, Model


class Instance(Service):
    """The service."""

    kind = MODEL

    def __init__(self, name: str, instance_id: str) -> None:
        self.name = name
        self.instance_id = instance_id

    def servicers(self) -> Mapping[str, object]:
        """One that answers with the id."""
        return {MODEL: Model(self.instance_id, self.name, "")}


def main(consul: str, name: str, instance_id: str) -> None:
    """Serves until it is killed."""
    registry = DiscoveryService("registry", ConsulRegistry(ConsulConfig(address=consul)))
    run(
        serve(
            [registry, Instance(name, instance_id)],
            ServeOptions(metrics_port=None, drain_s=1.0),
            lambda served: print(served.instances[-1].address, flush=True),
            exposed=lambda one: one.kind == MODEL,
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
