"""The rows that are shown: what is kept of each, and which are chosen.

sources.py  what is to be shown: runs and files
summary.py  what the index keeps of a row (pure)
filters.py  which rollouts, in which order: what a URL says, and the SQL for it (pure)
"""
