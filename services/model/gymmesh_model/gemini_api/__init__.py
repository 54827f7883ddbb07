"""Responses to Gemini's generateContent and back: pure functions on parsed JSON.

request.py   the body of `POST /v1beta/models/MODEL:generateContent`, of Responses parameters
answer.py    the Responses document, of the parts of a candidate
stream.py    the parts of a candidate, of the chunks of a stream
"""

from gymmesh_model.gemini_api.answer import CandidateParts, from_parts
from gymmesh_model.gemini_api.request import GeminiOptions, to_generate
from gymmesh_model.gemini_api.stream import CandidateFold

__all__ = ["CandidateFold", "CandidateParts", "GeminiOptions", "from_parts", "to_generate"]
