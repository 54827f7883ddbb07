"""The commands of `gym-cli sandbox`.

sandbox.py  the commands and their options
using.py    what they do, imported when one runs
"""
