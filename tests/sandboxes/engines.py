"""The daemons that the tests use, as tools/test-sandboxes.sh has started them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

#: NAME=URL of each daemon, separated by spaces.
VARIABLE = "GYMMESH_TEST_SANDBOXES"
IMAGE = os.environ.get("GYMMESH_TEST_SANDBOX_IMAGE", "local/py:1")


@dataclass(frozen=True)
class Daemon:
    """A daemon that speaks the Docker Engine API."""

    name: str
    url: str

    @property
    def options(self) -> dict[str, Any]:
        """What the backend is configured with."""
        return {
            "url": self.url,
            "default_image": IMAGE,
            # Machines in machines have lower limits than the daemons ask for.
            "ulimits": {"nofile": 4096, "nproc": 4096},
            "build_network": "host",
        }


def asked() -> bool:
    """Whether `make test-sandboxes` runs."""
    return VARIABLE in os.environ


def daemons() -> list[Daemon]:
    """Those that run; none unless `make test-sandboxes` started them."""
    found = []
    for word in os.environ.get(VARIABLE, "").split():
        name, _, url = word.partition("=")
        found.append(Daemon(name, url))
    return found
