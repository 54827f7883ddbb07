"""Programs that run as the agent: the known ones as data, and their run in a sandbox.

known_programs.py reads the data; options.py what a configuration says; prepared.py fills in a
rollout's names; sandboxed.py runs it; ends.py says what its end means.
"""

from gymmesh_agent.programs.known_programs import KnownProgram, find_program, known_programs

__all__ = ["KnownProgram", "find_program", "known_programs"]
