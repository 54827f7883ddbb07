"""Questions with a short answer that is compared as text or as a number."""

from .environment import StringMatchEnvironment

__all__ = ["StringMatchEnvironment"]
