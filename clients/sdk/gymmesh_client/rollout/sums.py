"""Sums that fit their column: beyond its range, the number in it that is nearest. Pure."""

from __future__ import annotations

from typing import Final

_MOST_INT64: Final = (1 << 63) - 1
_LEAST_INT64: Final = -(1 << 63)
_MOST_UINT64: Final = (1 << 64) - 1
_MOST_UINT32: Final = (1 << 32) - 1


def as_int64(total: int) -> int:
    """A sum for an int64."""
    return total if _LEAST_INT64 <= total <= _MOST_INT64 else _nearest_int64(total)


def as_uint64(total: int) -> int:
    """A sum for a uint64; `total` is not negative."""
    return total if total <= _MOST_UINT64 else _MOST_UINT64


def as_uint32(total: int) -> int:
    """A sum for a uint32; `total` is not negative."""
    return total if total <= _MOST_UINT32 else _MOST_UINT32


def _nearest_int64(total: int) -> int:
    return _MOST_INT64 if total > 0 else _LEAST_INT64
