"""gym-cli env: its commands for those who write environments.

env.py            start, try out and list them
index.py          gym-cli env index
mcp.py            gym-cli env mcp
scaffold.py       gym-cli env new, from the templates in new_environment/
"""
