"""Text of others as it may be shown and stored.

authors_code  what others' code raises that is no exception
faults        an exception in words: where it was raised, without the frames of this project
plain_text    control characters written out
secrets       secrets masked
"""

from gymmesh_runtime.text.faults import os_reason
from gymmesh_runtime.text.plain_text import laid_out, one_line, plain_json, shortened
from gymmesh_runtime.text.secrets import mask_secrets

__all__ = [
    "laid_out",
    "mask_secrets",
    "one_line",
    "os_reason",
    "plain_json",
    "shortened",
]
