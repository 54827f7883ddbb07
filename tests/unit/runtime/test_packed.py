"""Messages that are bytes already."""

from __future__ import annotations

from collections.abc import AsyncIterator

from google.protobuf import empty_pb2
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh_runtime.wire.packed import number_tag, packer, tag, unpacked, varint

ACK = agent_pb2.CollectAck(cursor=300)


def test_bytes_stay_what_they_are() -> None:
    pack = packer(agent_pb2.CollectAck)
    assert pack(ACK) == ACK.SerializeToString()
    assert pack(b"anything") == b"anything"


async def test_a_reader_in_this_process_gets_messages() -> None:
    async def said() -> AsyncIterator[agent_pb2.CollectAck | bytes]:
        yield ACK
        yield ACK.SerializeToString()

    assert [one async for one in unpacked(agent_pb2.CollectAck, said())] == [ACK, ACK]


@given(st.integers(1, 2**64 - 1))
def test_a_number(value: int) -> None:
    packed = number_tag(agent_pb2.CollectAck.CURSOR_FIELD_NUMBER) + varint(value)
    assert packed == agent_pb2.CollectAck(cursor=value).SerializeToString()


@given(st.integers(1, 40_000), st.integers(1, 2**20))
def test_what_stands_before_bytes(size: int, field: int) -> None:
    packed = tag(field) + varint(size) + b"x" * size
    # A message without fields keeps what it does not know.
    assert empty_pb2.Empty.FromString(packed).SerializeToString() == packed
    request = agent_pb2.CollectRequest(hello=agent_pb2.CollectHello(stream_id="x" * size))
    hello = request.hello.SerializeToString()
    expected = tag(agent_pb2.CollectRequest.HELLO_FIELD_NUMBER) + varint(len(hello)) + hello
    assert request.SerializeToString() == expected
