"""Text of others, made fit to be shown and stored.

authors_code  errors of others' code that are not Exceptions
faults        exceptions in words: where they were raised, without the frames of this project
plain_text    control characters written out
secrets       secrets masked
"""

from gymmesh_runtime.text.faults import (
    describe,
    os_reason,
    place_of,
    shown_place,
    shown_traceback,
    traceback_id,
)
from gymmesh_runtime.text.plain_text import (
    IN_LINES,
    PlainFormatter,
    laid_out,
    one_line,
    plain_json,
    shortened,
)
from gymmesh_runtime.text.secrets import mask_secrets, remember_secret, secret_masked

__all__ = [
    "IN_LINES",
    "PlainFormatter",
    "describe",
    "laid_out",
    "mask_secrets",
    "one_line",
    "os_reason",
    "place_of",
    "plain_json",
    "remember_secret",
    "secret_masked",
    "shortened",
    "shown_place",
    "shown_traceback",
    "traceback_id",
]
