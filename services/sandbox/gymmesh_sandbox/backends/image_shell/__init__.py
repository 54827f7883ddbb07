"""Files, signals and lists of processes of a sandbox, through the shell of its own image.

For backends whose only way into a sandbox is to start a program in it.
"""
