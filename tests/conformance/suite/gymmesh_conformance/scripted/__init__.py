"""The suite's own model, environments and registry, for an agent under test to work with.

They do what a case's `world` says and write down what was asked of them.
"""

from __future__ import annotations

from gymmesh_conformance.scripted.agent import ScriptedAgent
from gymmesh_conformance.scripted.script import Script
from gymmesh_conformance.scripted.serving import served, served_world
from gymmesh_conformance.scripted.world import Room, World, rooms

__all__ = ["Room", "Script", "ScriptedAgent", "World", "rooms", "served", "served_world"]
