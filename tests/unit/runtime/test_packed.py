"""Messages that are bytes already."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh_runtime.wire.packed import packer, unpacked, varint

ACK = agent_pb2.CollectAck(cursor=300)


def test_bytes_stay_what_they_are() -> None:
    pack = packer(agent_pb2.CollectAck)
    assert pack(ACK) == ACK.SerializeToString()
    assert pack(b"anything") == b"anything"


async def test_a_reader_in_this_process_gets_messages() -> None:
    async def said() -> AsyncIterator[agent_pb2.CollectAck | bytes]:
        yield ACK
        yield ACK.SerializeToString()

    assert [one async for one in unpacked(agent_pb2.CollectAck.FromString, said())] == [ACK, ACK]


@given(st.integers(1, 2**64 - 1))
def test_a_number(value: int) -> None:
    tag = varint(agent_pb2.CollectAck.CURSOR_FIELD_NUMBER << 3)
    assert tag + varint(value) == agent_pb2.CollectAck(cursor=value).SerializeToString()
