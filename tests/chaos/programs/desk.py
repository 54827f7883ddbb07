"""The environment of the chaos runs of programs: `workspace`, whose sandboxes end soon after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gymmesh_resource import SandboxSpec, Task
from gymmesh_resource.environments.workspace import WorkspaceEnvironment


class Desk(WorkspaceEnvironment):
    """`ttl_s`: how long a sandbox outlives an environment that was killed."""

    def __init__(self, *, ttl_s: int) -> None:
        super().__init__()
        self._ttl_s = ttl_s

    def sandbox_specs(self, task: Task) -> Mapping[str, SandboxSpec]:
        specs = super().sandbox_specs(task)
        return {role: replace(spec, ttl_s=self._ttl_s) for role, spec in specs.items()}
