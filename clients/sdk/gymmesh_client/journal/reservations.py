"""The order in which a run's rollouts were begun: that in which their attempts were reserved."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Final

from gymmesh_client.journal.disk import reason
from gymmesh_client.journal.layout import OutputFiles
from gymmesh_client.journal.records import (
    RELEASED_TYPE,
    RESERVED_TYPE,
    BadRecord,
    Released,
    Reserved,
    bodies,
    decode_one,
)
from gymmesh_client.journal.store import frames_of, mapped
from gymmesh_client.problems import UserError

_FIRST: Final = 1


def first_reserved(files: OutputFiles) -> Iterator[bytes]:
    """The key of each rollout that was begun, once, in the order of their first attempts.

    Attempts that were reserved and not sent, as at a session's end, count where they were reserved
    again. In memory are those of such sessions, a few hundred each.

    Raises:
        UserError: the journal cannot be read, or is damaged.
    """
    given_back: Counter[bytes] = Counter()
    for record in _reservations(files):
        if isinstance(record, Released):
            given_back.update(key for key, attempt in record.attempts if attempt == _FIRST)
    for record in _reservations(files):
        if isinstance(record, Released):
            continue
        for key, attempt in record.attempts:
            if attempt != _FIRST:
                continue
            if given_back[key]:
                given_back[key] -= 1
            else:
                yield key


def _reservations(files: OutputFiles) -> Iterator[Reserved | Released]:
    try:
        fd = os.open(files.journal, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"{files.journal}: cannot be read: {reason(error)}") from None
    try:
        with mapped(fd) as data:
            for frame in frames_of(data, files):
                for kind, body in bodies(frame.payload):
                    if kind in (RESERVED_TYPE, RELEASED_TYPE):
                        record = decode_one(kind, body)
                        if isinstance(record, Reserved | Released):
                            yield record
    except BadRecord as error:
        raise UserError(f"{files.journal}: is damaged: {error}") from None
    finally:
        os.close(fd)
