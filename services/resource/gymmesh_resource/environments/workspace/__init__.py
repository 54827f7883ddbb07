"""The workspace environment: files to work on, judged by commands once the agent has ended."""

from gymmesh_resource.environments.workspace.environment import WorkspaceEnvironment

__all__ = ["WorkspaceEnvironment"]
