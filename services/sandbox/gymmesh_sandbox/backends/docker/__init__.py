"""Sandboxes as containers of a daemon that speaks the Docker Engine API: Docker or Podman."""

from gymmesh_runtime.extras import Extra

Extra("docker", ("aiodocker",)).require("the sandbox backend 'docker'", path="backend")

# Behind it, so that a missing library is named with what to install.
from gymmesh_sandbox.backends.docker.backend import DockerBackend  # noqa: E402

__all__ = ["DockerBackend"]
