"""Messages that are bytes already.

On a stream both ways, either side may hand over a message's bytes in its place. Who puts large
messages together from parts that are bytes, as a batch of events is, need not have them read into
a message only to be written again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import Message

_VARINTS: Final = 4096  # how many are kept: the lengths of things alike


def packer(message_class: type[Message]) -> Callable[[Any], bytes]:
    """What makes bytes of a message of this class; bytes stay what they are."""
    serialize = message_class.SerializeToString
    return lambda message: message if isinstance(message, bytes) else serialize(message)


async def unpacked(
    read: Callable[[bytes], Any], messages: AsyncIterator[Any]
) -> AsyncIterator[Any]:
    """The messages, for a reader in this process, who gets them as over a wire.

    ``read`` decodes one that came in its bytes, and raises MeshError.
    """
    async for message in messages:
        yield read(message) if isinstance(message, bytes) else message


@lru_cache(_VARINTS)
def varint(value: int) -> bytes:
    """An unsigned integer as the wire format has it: seven bits a byte, the lowest first."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
