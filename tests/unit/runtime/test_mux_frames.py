"""Frames on the wire, and large messages that take turns with small ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.rpc import status_pb2
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.sizes import MIB
from gymmesh_runtime.wire.mux import frames
from gymmesh_runtime.wire.mux.frames import (
    CHUNK_BYTES,
    MAX_PAYLOAD_BYTES,
    Cancel,
    Credit,
    End,
    Frame,
    GoAway,
    Message,
    UnaryAnswer,
    pack,
    unpack,
)
from gymmesh_runtime.wire.mux.outbox import OutboxClosed
from gymmesh_runtime.wire.mux.sender import ChunkQueues, Sender

F = mux_pb2.Frame
STATUS = status_pb2.Status(code=8, message="full")


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        (
            frames.Begin(1, "s/M", 500, {"k": "v"}, b"q", False, 3),
            [
                F(
                    call=1,
                    begin=mux_pb2.Begin(
                        method="s/M", timeout_ms=500, metadata={"k": "v"}, payload=b"q", credit=3
                    ),
                )
            ],
        ),
        (
            frames.Begin(1, "s/M", 500, {}, b"q", False, 0),
            [F(call=1, begin=mux_pb2.Begin(method="s/M", timeout_ms=500, payload=b"q"))],
        ),
        (Message(2, b"", False), [F(call=2, message=mux_pb2.Message())]),
        (Message(2, b"m", True), [F(call=2, message=mux_pb2.Message(payload=b"m", more=True))]),
        (
            frames.Chunk(2, memoryview(b"c"), True),
            [F(call=2, chunk=mux_pb2.Chunk(payload=b"c", last=True))],
        ),
        (frames.Chunk(2, b"", False), [F(call=2, chunk=mux_pb2.Chunk())]),
        (End(3, None), [F(call=3, end=mux_pb2.End())]),
        (End(3, STATUS), [F(call=3, end=mux_pb2.End(status=STATUS))]),
        (
            UnaryAnswer(4, b"a"),
            [F(call=4, message=mux_pb2.Message(payload=b"a")), F(call=4, end=mux_pb2.End())],
        ),
        (
            UnaryAnswer(4, b""),
            [F(call=4, message=mux_pb2.Message()), F(call=4, end=mux_pb2.End())],
        ),
        (Cancel(5), [F(call=5, cancel=mux_pb2.Cancel())]),
        (Credit(6, 9), [F(call=6, credit=mux_pb2.Credit(messages=9))]),
        (Credit(6, 0), [F(call=6, credit=mux_pb2.Credit())]),
        (GoAway(0, "bye"), [F(go_away=mux_pb2.GoAway(reason="bye"))]),
        (GoAway(0, ""), [F(go_away=mux_pb2.GoAway())]),
    ],
)
def test_a_frame_on_the_wire(sent: Frame, arrives: list[F]) -> None:
    assert list(unpack(pack([sent, sent])).frames) == [*arrives, *arrives]
    # Both directions look the same.
    assert list(mux_pb2.ExchangeResponse.FromString(pack([sent])).frames) == arrives


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 3 * MIB + 7])
def test_large_messages_are_cut_and_put_together(size: int) -> None:
    payload = bytes(index % 251 for index in range(1000)) * (size // 1000 + 1)
    payload = payload[:size]
    for cut in (
        frames.begin(1, "s/M", 5, {}, payload, 0),
        frames.message(1, payload),
        frames.answer(1, payload),
    ):
        got = b""
        for frame in unpack(pack(cut)).frames:
            kind: Any = frame.WhichOneof("kind")
            if kind == "end":
                continue
            part: Any = getattr(frame, kind)
            assert len(part.payload) <= MAX_PAYLOAD_BYTES
            got += part.payload
        assert got == payload


@pytest.mark.parametrize("data", [b"\x0a", b"\xff" * 9, b"not a batch"])
def test_what_is_no_batch_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a batch"):
        unpack(data)


def chunk(call: int, index: int, size: int = 10) -> Frame:
    return frames.Chunk(call, bytes([index % 256]) * size, False)


@given(st.lists(st.one_of(st.integers(0, 3), st.just("next"), st.just("drop")), max_size=60))
def test_chunk_queues_take_turns_and_keep_each_calls_order(steps: list[int | str]) -> None:
    queues = ChunkQueues()
    waiting: dict[int, list[int]] = {}
    last_turn: list[int] = []
    count = 0
    for step in steps:
        if isinstance(step, int):
            queues.add(step, [chunk(step, count)])
            waiting.setdefault(step, []).append(count % 256)
            count += 1
        elif step == "drop":
            queues.drop(0)
            waiting.pop(0, None)
        else:
            frame = queues.next()
            if frame is None:
                assert not waiting
                continue
            call = frame.call
            assert isinstance(frame, frames.Chunk)
            assert frame.payload[0] == waiting[call].pop(0)
            if not waiting[call]:
                del waiting[call]
            last_turn.append(call)
        assert len(queues) == len(waiting)
        assert all(call in queues for call in waiting)
        assert queues.size == sum(map(len, waiting.values())) * (10 + frames.FRAME_BYTES)


def test_chunk_queues_are_fair() -> None:
    queues = ChunkQueues()
    for call in (1, 3, 5):
        queues.add(call, [chunk(call, index) for index in range(3)])
    turns = [frame.call for frame in iter(queues.next, None)]
    assert turns == [1, 3, 5] * 3


async def sent_by(sender: Sender) -> list[Frame]:
    """All that leaves until the sender is closed."""
    out: list[Frame] = []
    while batch := await asyncio.wait_for(sender.batch(), 60):
        out += batch
    return out


def small(call: int) -> Frame:
    return UnaryAnswer(call, b"small")


async def test_small_frames_do_not_wait_for_a_large_message() -> None:
    sender = Sender()
    large = frames.message(1, b"x" * (8 * CHUNK_BYTES))
    sender.send(large)
    for call in range(3, 23, 2):
        sender.send([small(call)])
    sender.close()
    order = [frame.call for frame in await sent_by(sender)]
    assert order[0] == 1
    assert order[1:11] == list(range(3, 23, 2))  # behind one piece, not behind eight
    assert order[11:] == [1] * 7


async def test_later_frames_of_a_call_stay_behind_its_large_message() -> None:
    sender = Sender()
    sender.send(frames.message(1, b"x" * (3 * CHUNK_BYTES)))
    sender.send([Message(1, b"next", False)])
    sender.send(frames.message(1, b"y" * (2 * CHUNK_BYTES)))
    sender.send([End(1, None)])
    sender.close()
    out = [frame for frame in await sent_by(sender) if frame.call == 1]
    kinds = [type(frame) for frame in out]
    assert kinds == [Message, frames.Chunk, frames.Chunk, Message, Message, frames.Chunk, End]


async def test_two_large_messages_take_turns() -> None:
    sender = Sender()
    for call in (1, 3):
        sender.send(frames.message(call, b"x" * (4 * CHUNK_BYTES)))
    sender.close()
    # The first piece left before there was a second message.
    assert [frame.call for frame in await sent_by(sender)] == [1, 1, 3, 1, 3, 1, 3, 3]


async def test_a_call_given_up_sends_no_more_chunks() -> None:
    sender = Sender()
    sender.send(frames.message(1, b"x" * (8 * CHUNK_BYTES)))
    await sender.batch()
    sender.forget(1)
    sender.send([Cancel(1)])
    sender.close()
    kinds = [type(frame) for frame in await sent_by(sender)]
    assert kinds == [frames.Chunk, Cancel]  # one was in the queue already


async def test_senders_of_large_messages_wait_for_room() -> None:
    sender = Sender()
    piece = frames.message(1, b"x" * (64 * MIB))
    sender.send(piece)
    sender.send(frames.message(3, b"x" * (2 * CHUNK_BYTES)))
    assert sender.full
    room = asyncio.create_task(sender.room())
    await asyncio.sleep(0)
    assert not room.done()
    for _ in range(4):
        await sender.batch()
    await asyncio.wait_for(room, 60)
    assert not sender.full


async def test_an_aborted_sender_sends_nothing_more_and_wakes_who_waits() -> None:
    sender = Sender()
    for call in (1, 3):
        sender.send(frames.message(call, b"x" * (64 * MIB)))
    room = asyncio.create_task(sender.room())
    await asyncio.sleep(0)
    sender.abort()
    with pytest.raises(OutboxClosed):
        await asyncio.wait_for(room, 60)
    sender.send([small(5)])
    sender.send(frames.message(7, b"x" * (2 * CHUNK_BYTES)))
    assert len(await sent_by(sender)) == 1  # the piece that was in the queue
