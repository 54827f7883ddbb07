"""Programs that run as the agent: the known programs as data, and their run in a sandbox.

known_programs.py reads the data. options.py reads the configuration. prepared.py fills in a
rollout's values. sandboxed.py runs the program. ends.py decides what its end means.
"""

from gymmesh_agent.programs.known_programs import KnownProgram, find_program, known_programs

__all__ = ["KnownProgram", "find_program", "known_programs"]
