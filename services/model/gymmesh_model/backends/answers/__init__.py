"""Answers as endpoints give them, read and checked. Pure.

chat_stream.py       a streamed answer of Chat Completions
responses_stream.py  one of the Responses API
read_response.py     a whole one of the Responses API
"""
