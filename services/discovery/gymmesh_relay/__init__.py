"""The relay: instances that nobody can dial join the mesh over a connection that they dialled.

service.py    RelayService: takes offers
offers.py     who may offer what (pure)
instance.py   one offered instance: its port, its registration, its connection and who waits for it
forwarder.py  passes calls on to the instance, unread
config.py     its configuration; metrics.py: what it counts

What an offer means is in ``gymmesh/relay/v1/relay.proto``.
"""
