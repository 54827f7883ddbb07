"""The relay: instances that nobody can dial join the mesh over a connection that they dialled.

service.py    RelayService: accepts offers
offers.py     which identity may offer which names (pure)
instance.py   one offered instance: its port, registration, connection and waiting calls
forwarder.py  forwards calls to the instance without reading the messages
config.py     the relay's configuration
metrics.py    the relay's metrics

``gymmesh/relay/v1/relay.proto`` explains offers.
"""
