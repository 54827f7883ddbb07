"""The harbor environment: task folders of Harbor and Terminal-Bench, judged by their own tests."""

from gymmesh_resource.environments.harbor.environment import HarborEnvironment

__all__ = ["HarborEnvironment"]
