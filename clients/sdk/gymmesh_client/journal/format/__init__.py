"""What a run's files are called (layout.py) and what is in a journal: ids of rollouts (keys.py),
records (records.py), and the frames around those of a commit (frames.py). Pure.
"""
