"""What a command that runs something needs: a mesh (session.py) and tasks (task_choice.py)."""
