"""The tree of a rollout's captured calls: where a program's request belongs. Pure.

`CallTree.place` reads a request and decides: the request repeats a call, continues one, departs
from one, is a side call, or begins a new conversation. docs/ideas/capture.md has the rules (the
law).
"""

from gymmesh_agent.gateway.tree.call_tree import CallTree
from gymmesh_agent.gateway.tree.placement import NewCall, RepeatedCall
from gymmesh_agent.gateway.tree.side_calls import SideCallRule

__all__ = ["CallTree", "NewCall", "RepeatedCall", "SideCallRule"]
