"""Questions with a short answer that is compared as text or as a number."""

from gymmesh_resource.environments.string_match.environment import StringMatchEnvironment

__all__ = ["StringMatchEnvironment"]
