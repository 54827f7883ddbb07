"""gym-cli, the mesh on the command line. main.py names the commands; one that is used is imported.

collect/       collect, run
runs/          runs
stored/        export, import, profile, compare, show, reverify, view
data/          data
environments/  env
services/      up, serve, xds, certs, models, conformance

A file is named after its command, and has its options; what the command does is in another file
where it needs much, imported when the command runs. Below them, and imported by all:

shared/        what several commands do: the mesh and the tasks of one, tracking
options/       options of several commands
terminal/      what is written: text, exit codes, logs
"""

import os

# Before gRPC is loaded, and before our runtime asks for its errors: what its C code logs of forks,
# closed connections and ports is no news to a user, as a failed call's own error says more. To see
# it: GRPC_VERBOSITY=INFO.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
