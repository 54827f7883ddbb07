"""gym-cli collect and gym-cli run: rollouts of a task file, or of one task.

collect.py       the options of collect; collecting.py does it
run.py           the options of run; run_one.py does it
progress.py      how far a run is, on stderr
earlier.py       what the output of a resumed run already has
handing_over.py  the end of a run whose groups go to a trainer
resuming.py      the command that resumes a run
"""

from gymmesh_cli.collect.resuming import resume_command

__all__ = ["resume_command"]
