"""Options of several commands, or of one that has many, and what is made of them.

shared.py              the mesh, the output, where a service listens, and single options
security.py            how a command authenticates itself to services elsewhere
pace.py                how a run is dispatched
shards.py              runs that several collectors do together
track.py               figures for a tracker
groups.py              how options become one argument
kept_configuration.py  the configuration of a run that is resumed
"""
