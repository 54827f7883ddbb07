"""What the processes of a mesh import: nothing that only some of them need."""

from __future__ import annotations

import subprocess
import sys

# What each kind of service imports before it knows its backend or its programs.
_SERVICES = (
    "gymmesh_mesh.worker",
    "gymmesh_agent.service",
    "gymmesh_agent.tool_loop",
    "gymmesh_discovery.service",
    "gymmesh_model.service",
    "gymmesh_resource.service",
    "gymmesh_resource.environments.math.environment",
)


def test_services_import_no_http_that_they_do_not_use() -> None:
    code = f"import sys, {', '.join(_SERVICES)}; print('aiohttp' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "False\n"
