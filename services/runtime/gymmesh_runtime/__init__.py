"""The floor under every service and the client: how calls travel, are checked and fail, and how a
process is configured, served and watched. It does not know what a model, a tool or an agent is.
"""

import os

# Before gRPC is loaded: its notes about closed connections and forks are no news. What the user
# has set stays.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# gRPC's fork handlers start its poller again in the child of any fork, which now and then aborts
# there before the new program runs (grpc/grpc#43055). uvloop forks for each process it starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
