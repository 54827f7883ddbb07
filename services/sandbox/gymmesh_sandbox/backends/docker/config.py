"""The options of the backend for the Docker Engine API."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

_Limit = Annotated[int, msgspec.Meta(ge=1)]


class DockerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a daemon of Docker or Podman, and how its containers are created.

    Attributes:
        url: the daemon's address, `unix:///run/podman/podman.sock` or `tcp://host:port`; empty:
            `DOCKER_HOST`, or without this variable the first usual socket that exists.
        default_image: the image for requests that name none; empty: requests must name one.
        pull: when images are fetched: `missing`, `always` (before each start) or `never`.
        builds: whether images are built from a Dockerfile.
        build_network: the network for the steps of a build; empty: the daemon's default.
        runtime: the OCI runtime, such as `runsc`; empty: the daemon's default.
        ulimits: limits of each process, both soft and hard, such as `nofile: 4096`.
        disk: whether the daemon's storage driver accepts a size for each container.
    """

    url: str = ""
    default_image: str = ""
    pull: Literal["missing", "always", "never"] = "missing"
    builds: bool = True
    build_network: str = ""
    runtime: str = ""
    ulimits: dict[str, _Limit] = {}
    disk: bool = False
