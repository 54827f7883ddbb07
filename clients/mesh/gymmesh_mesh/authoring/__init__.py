"""What the commands for authors of environments do: trials, conformance, tools over MCP, tasks."""
