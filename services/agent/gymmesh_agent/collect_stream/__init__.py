"""Collect: many rollouts over one stream, for collectors. The agent's side.

server       all collectors: hello, resumption, free places, load, shutdown
collector    one collector's connection and the tasks of its attempts
stream       one collector's stream: what it asked for, what it is sent (pure)
run_queue    the attempts of one stream, waiting and running (pure)
send_buffer  the events of one stream, until they are acknowledged (pure)
errors       why a collector does not get what it asked for
"""
