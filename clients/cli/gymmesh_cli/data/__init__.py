"""gym-cli data: files of tasks, and the rows of a run.

data.py        the group of its commands; gym-cli data compact; gym-cli data validate, which
               validation.py does
generate.py    gym-cli data generate
show.py        gym-cli data show and gym-cli data trace
"""
