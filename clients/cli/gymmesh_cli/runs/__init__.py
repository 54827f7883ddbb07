"""gym-cli runs: runs that are being collected.

runs.py      its commands and their options
steering.py  what they do
merge.py     gym-cli runs merge: shards become one run
"""
