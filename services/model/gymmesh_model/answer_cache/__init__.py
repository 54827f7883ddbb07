"""Answers kept on disk, and the keys under which they are found."""

from gymmesh_model.answer_cache.key import AnswerKeys
from gymmesh_model.answer_cache.store import AnswerCache

__all__ = ["AnswerCache", "AnswerKeys"]
