"""Answers as endpoints give them, read and checked. Pure.

chat_stream.py  a streamed answer of Chat Completions
responses.py    one of the Responses API, streamed or whole
"""
