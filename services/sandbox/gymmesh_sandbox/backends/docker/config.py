"""The options of the backend for the Docker Engine API."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

_Limit = Annotated[int, msgspec.Meta(ge=1)]


class DockerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a daemon of Docker or Podman, and how its containers are made.

    Attributes:
        url: the daemon's address, `unix:///run/podman/podman.sock` or `tcp://host:port`; empty:
            `DOCKER_HOST`, else the first of the usual sockets that exists.
        default_image: the image of a request that names none; empty: an image has to be named.
        pull: when images are fetched: those that are missing, all before each start, or never.
        builds: whether images are built from a Dockerfile.
        build_network: the network of a build's steps; empty: the daemon's default.
        runtime: the OCI runtime, such as `runsc`; empty: the daemon's default.
        ulimits: limits of each process, soft and hard alike, such as `nofile: 4096`.
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
