"""The errors of the embedded model.

LocalModelError
├── WeightsError      the weights are missing, incomplete, or cannot be downloaded
└── ServerError       the model server did not start, or is not running

Every message is one sentence with the failure and a fix.
"""

from __future__ import annotations


class LocalModelError(Exception):
    """Base of every error that the embedded model raises on its own account."""


class WeightsError(LocalModelError):
    """Model weights could not be fetched, read or verified."""


class ServerError(LocalModelError):
    """The embedded model server did not start in time, or has ended."""
