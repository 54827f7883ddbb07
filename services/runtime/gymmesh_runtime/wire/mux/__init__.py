"""The mux: many calls over one Exchange stream.

The files, in the order of a call:

    peer.py          a service's methods, called over the mux or by plain RPCs
    connection.py    the stream to one address: opened when needed, opened again when it broke
    calling.py       one call that this side makes: its request, its responses, its deadline
    sender.py        what waits to leave, gathered into batches
    frames.py        the frames of a batch and their bytes; stream.py: the gRPC stream under them
    servicer.py      the server's end of a stream: lets its caller in
    exchange.py      either end of a stream: reads and writes batches, and brings it to its end
    table.py         which calls are open and which frame may come next; assembly.py: in chunks
    serving.py       one call that this side serves: one task each, through its binding

What frames mean, and the limits of both sides, is in ``gymmesh/mux/v1/mux.proto``.
"""
