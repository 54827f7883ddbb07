"""What several commands do, each in a room of its own.

interrupts.py   Ctrl-C and SIGTERM
session.py      opens the mesh that a command runs in
task_choice.py  reads its tasks
tracking.py     sends a run, or a profile, to a tracker
"""

MEMBERS_ARE_ROOMS = True  # see tools/import_faces.py
