"""The gateway measured, in parts that `bench_gateway.py` runs.

speech      what programs send and are answered, in two dialects
endpoint    the scripted model server, a process of its own
driver      plays programs, and times their calls
ours        a mesh whose agent lets the driver play its program; peer_verifiers likewise
boxes       a mesh whose programs run in sandboxes; small_program is one of them
session     one long session: its row, its page and its exports
"""
