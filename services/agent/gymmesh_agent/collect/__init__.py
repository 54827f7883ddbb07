"""Collect: many rollouts over one stream, for collectors. The agent's side.

ledger    what a collector was sent, may be sent and has stored (pure)
roster    the attempts of one stream, and whose turn it is to start one (pure)
line      one connection: what leaves on it, in batches
problems  what a collector hears when it does not get what it asked for
attempt   one attempt of a stream: its events, and its end
stream    one collector's stream, over any number of connections
desk      all streams of an agent: hello, takeover, places, load, shutdown
"""
