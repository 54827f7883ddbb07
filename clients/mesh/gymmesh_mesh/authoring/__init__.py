"""What the commands for authors of environments do, each in a room of its own.

auditing      puts verifiers on trial
environments  what environments there are; trials, indexes, generated tasks
mcp_session   an environment's tools over MCP
protocols     the protocols of other frameworks that an environment is served with
placing       an environment that a command names by its place
task_checks   checks of tasks by the environments that they are for
validating    checks of a configuration
"""

MEMBERS_ARE_ROOMS = True  # see tools/import_faces.py
