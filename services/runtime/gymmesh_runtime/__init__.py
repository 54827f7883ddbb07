"""The floor under every service and the client.

What lives here: errors and their wire form, the call context, bindings (the
checks that every call goes through, whatever its path), channels and peers,
the server life cycle, discovery registration, metrics and configuration.
What does not: anything that knows what a model, a tool or an agent is.
"""

import os

# Before gRPC is loaded: its notes about closed connections and forks are no news. What the user
# has set stays.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# gRPC's fork handlers start its poller again in the child of any fork, which now and then aborts
# there before the new program runs (grpc/grpc#43055). uvloop forks for each process it starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
