"""The security of a configuration, changed by what a command says."""

from __future__ import annotations

import msgspec

from gymmesh_mesh.config import MeshConfig
from gymmesh_runtime.security import SecurityConfig


def exposed(config: MeshConfig) -> MeshConfig:
    """The configuration of a mesh that may be open to others, as `--insecure` says."""
    security = msgspec.structs.replace(config.security or SecurityConfig(), insecure=True)
    return msgspec.structs.replace(config, security=security)
