"""The base of every service and of the client: how calls travel, are checked and fail, and how a
process is configured, served and observed. This package has no code about models, tools or agents.
"""

import os

# Before gRPC is loaded: its notes about closed connections and forks are no news. What the user
# has set stays.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# gRPC's fork handlers start its poller again in the child of any fork, which now and then aborts
# there before the new program runs (grpc/grpc#43055). uvloop forks for each process it starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
