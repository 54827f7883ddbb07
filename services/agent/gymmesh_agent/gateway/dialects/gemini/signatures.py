"""Minted ids as thought signatures. Pure.

A `thoughtSignature` is bytes in Base64, which programs decode and encode again. So a minted id is
sent as the Base64 of its text, padded to whole groups so that all variants of Base64 agree.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from gymmesh_agent.gateway.minted import LONGEST_MINTED_ID, Minted, minted

#: What clients send for a part that they made themselves; the API ignores it.
NO_SIGNATURE: Final = frozenset(
    (
        base64.b64encode(b"context_engineering_is_the_way_to_go").decode(),
        base64.b64encode(b"skip_thought_signature_validator").decode(),
        "context_engineering_is_the_way_to_go",
        "skip_thought_signature_validator",
    )
)
_FILL: Final = "."
_GROUP: Final = 3


def signature_of(named: Minted) -> str:
    """The signature that names a recorded item."""
    text = named.id("sig")
    return base64.b64encode((text + _FILL * (-len(text) % _GROUP)).encode()).decode()


def minted_in(signature: str) -> str | None:
    """The minted id in a signature; None for another endpoint's signature."""
    if len(signature) > 2 * LONGEST_MINTED_ID:
        return None
    try:
        text = base64.urlsafe_b64decode(signature).decode("ascii")
    except (binascii.Error, ValueError):
        return None
    text = text.rstrip(_FILL)
    return text if minted(text) else None
