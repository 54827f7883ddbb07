"""The API server in the configuration of discovery."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gymmesh_discovery.config import KubernetesConfig
from gymmesh_runtime.kubernetes import Access, find_api_server


def find_access(
    config: KubernetesConfig, env: Mapping[str, str] = os.environ, pod: Path | None = None
) -> Access:
    """The API server of a configuration. Raises ConfigError."""
    return find_api_server(config, "discovery.kubernetes", env, pod)
