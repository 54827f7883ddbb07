"""What every backend is given of a call: its parameters (settings.py), and where its deltas and
its answer up to now go (progress.py), and which weights answer it (weights.py).
"""

from gymmesh_model.backends.calls.progress import CallProgress, DeltaKind, GrowingText, StreamReader
from gymmesh_model.backends.calls.retries import RetryLog
from gymmesh_model.backends.calls.settings import CallSettings, KnownSettings
from gymmesh_model.backends.calls.weights import CallWeights, WeightsInForce

__all__ = [
    "CallProgress",
    "CallSettings",
    "CallWeights",
    "DeltaKind",
    "GrowingText",
    "KnownSettings",
    "RetryLog",
    "StreamReader",
    "WeightsInForce",
]
