"""The tree of a rollout's captured calls: where a program's request belongs. Pure.

`CallTree.place` reads a request and says whether it repeats a call, continues one, departs from
one, stands beside the conversation or begins a new one. docs/ideas/capture.md is the law that it
keeps.
"""

from gymmesh_agent.gateway.tree.call_tree import CallTree
from gymmesh_agent.gateway.tree.placement import NewCall, RepeatedCall
from gymmesh_agent.gateway.tree.side_calls import SideCallRule

__all__ = ["CallTree", "NewCall", "RepeatedCall", "SideCallRule"]
