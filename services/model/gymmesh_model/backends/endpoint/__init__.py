"""Endpoints of a model, over HTTP: bytes out, bytes in, every failure typed.

http.py          the endpoints of one model, and a request's body; sse.py reads events
attempts.py      one call, again where that is safe, within its time limit
load_poll.py     reads how busy an endpoint is, every few seconds
classify.py      what an endpoint said went wrong, as one typed error (pure)
remedies.py      what a user can do about it (pure)
secret_texts.py  texts that must not be shown
"""
