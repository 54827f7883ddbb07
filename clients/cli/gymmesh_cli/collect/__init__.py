"""gym-cli collect and gym-cli run: rollouts of a task file, or of one task.

collect.py     the options of collect; collecting.py does it
run.py         the options of run; run_one.py does it
progress.py    how far a run is, on stderr
resuming.py    the command that resumes a run
"""

from gymmesh_cli.collect.resuming import resume_command

__all__ = ["resume_command"]
