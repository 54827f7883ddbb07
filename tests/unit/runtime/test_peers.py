"""The directory: who is picked, who waits, and what becomes of channels."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime import peers
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory, TransportName
from tests.support.ports import free_port
from tests.unit.runtime.probe import (
    DISCOVERY,
    MODEL,
    Probe,
    instance_at,
    served,
    stream,
    unary,
    until,
)

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@pytest.fixture(params=["auto", "plain"])
async def directory(request: pytest.FixtureRequest) -> AsyncIterator[PeerDirectory]:
    one = PeerDirectory(transport=request.param)
    yield one
    await one.close()


async def open_at(directory: PeerDirectory, addresses: list[str]) -> None:
    """A channel is closed after its last call, not in the same moment."""
    await until(lambda: directory.open_addresses() == addresses)


def math_at(number: int, **fields: str) -> discovery_pb2.Instance:
    return instance_at(f"127.0.0.1:{number}", instance_id=f"model-{number}", **fields)


async def _picked(ids: set[str], affinity: str) -> str:
    directory = PeerDirectory()
    for one in ids:
        directory.upsert(instance_at("127.0.0.1:1", instance_id=one))
    return (await directory.pick(MODEL, "policy", affinity=affinity)).id


@given(ids=st.sets(_NAMES, min_size=1, max_size=6), other=_NAMES, affinity=_NAMES)
def test_affinity_is_kept_when_others_come_and_go(ids: set[str], other: str, affinity: str) -> None:
    async def law() -> None:
        before = await _picked(ids, affinity)
        assert await _picked(ids | {other}, affinity) in {before, other}
        if other != before and ids - {other}:
            assert await _picked(ids - {other}, affinity) == before

    asyncio.run(law())


@pytest.mark.parametrize("count", [2, 3, 4, 7])
async def test_affinity_spreads_the_load_evenly(directory: PeerDirectory, count: int) -> None:
    for number in range(count):
        directory.upsert(math_at(number))
    picks = Counter(
        [
            (await directory.pick(MODEL, "policy", affinity=f"rollout-{index}")).id
            for index in range(400 * count)
        ]
    )
    assert set(picks) == {f"model-{number}" for number in range(count)}
    # 400 each on average, with a standard deviation below 20.
    assert all(280 < n < 520 for n in picks.values()), picks


@pytest.mark.parametrize("affine", [True, False])
async def test_weights_share_the_load_out(directory: PeerDirectory, affine: bool) -> None:
    for number, weight in enumerate((1, 3, 0)):  # 0 counts as 1
        one = math_at(number)
        one.weight = weight
        directory.upsert(one)
    picks: Counter[str] = Counter()
    for index in range(2000):
        affinity = f"rollout-{index}" if affine else ""
        picks[(await directory.pick(MODEL, "policy", affinity=affinity)).id] += 1
    # 400, 1,200 and 400 on average, with standard deviations below 22.
    assert abs(picks["model-1"] - 1200) < 110, picks
    assert abs(picks["model-0"] - 400) < 90, picks


async def test_the_choice_for_an_affinity_is_made_once_until_instances_change(
    directory: PeerDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = 0

    def counted(affinity: str, instance: discovery_pb2.Instance) -> float:
        nonlocal scored
        scored += 1
        return score(affinity, instance)

    score = peers._score
    monkeypatch.setattr(peers, "_score", counted)
    for number in range(5):
        directory.upsert(math_at(number))
    first = {(await directory.pick(MODEL, "policy", affinity="r-1")).id for _ in range(10)}
    assert scored == 5
    assert first == {await _picked({f"model-{number}" for number in range(5)}, "r-1")}
    directory.remove(*first)
    second = await directory.pick(MODEL, "policy", affinity="r-1")
    assert second.id not in first
    # Without an affinity they still take turns.
    turns = {(await directory.pick(MODEL, "policy")).id for _ in range(8)}
    assert turns == {f"model-{number}" for number in range(5)} - first


async def test_affinities_without_end_take_no_memory_without_end(
    directory: PeerDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_MOST_CHOSEN", 10)
    for number in range(2):
        directory.upsert(math_at(number))
    for index in range(100):
        await directory.pick(MODEL, "policy", affinity=f"r-{index}")
    assert len(directory._chosen) <= 10


async def test_an_affinity_of_any_text(directory: PeerDirectory) -> None:
    directory.upsert(math_at(1))
    directory.upsert(math_at(2))
    assert await directory.pick(MODEL, "policy", affinity="\ud800")


async def test_without_affinity_instances_take_turns(directory: PeerDirectory) -> None:
    for number in range(3):
        directory.upsert(math_at(number))
    picks = Counter([(await directory.pick(MODEL, "policy")).id for _ in range(30)])
    assert picks == {"model-0": 10, "model-1": 10, "model-2": 10}


async def test_only_those_that_serve_are_picked(directory: PeerDirectory) -> None:
    healths = [
        discovery_pb2.HEALTH_DRAINING,
        discovery_pb2.HEALTH_NOT_SERVING,
        discovery_pb2.HEALTH_UNSPECIFIED,
        discovery_pb2.HEALTH_SERVING,
    ]
    for number, health in enumerate(healths):
        one = math_at(number)
        one.health = health
        directory.upsert(one)
    directory.upsert(math_at(9, name="judge"))
    directory.upsert(math_at(8, service=DISCOVERY))
    picked = {(await directory.pick(MODEL, "policy", affinity=str(n))).id for n in range(20)}
    assert picked == {"model-3"}


async def _refusal(directory: PeerDirectory, name: str, service: str = MODEL) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await directory.pick(service, name, timeout=0.05)
    assert caught.value.reason == errors_pb2.ERROR_REASON_SERVICE_NOT_FOUND
    known = ", ".join(sorted({o.name for o in directory.instances() if o.service == service}))
    assert caught.value.metadata == {"service": service, "name": name, "known": known}
    return caught.value


async def test_the_nearest_name_is_named(directory: PeerDirectory) -> None:
    directory.upsert(math_at(1))
    directory.upsert(math_at(2, name="judge"))
    near = await _refusal(directory, "polcy")
    assert near.message == "no model service named 'polcy' is serving; did you mean 'policy'?"
    assert "known model services: judge, policy" in (await _refusal(directory, "zzz")).message
    assert (
        "known discovery services: none" in (await _refusal(directory, "policy", DISCOVERY)).message
    )


async def test_one_that_is_there_but_takes_no_calls_is_told_apart(directory: PeerDirectory) -> None:
    one = math_at(1)
    one.health = discovery_pb2.HEALTH_DRAINING
    directory.upsert(one)
    assert "accepts no calls" in (await _refusal(directory, "policy")).message


async def test_a_watched_directory_waits_for_an_instance() -> None:
    directory = PeerDirectory(watched=True)
    picks = [asyncio.create_task(directory.pick(MODEL, "policy", timeout=30.0)) for _ in range(3)]
    await asyncio.sleep(0)
    directory.upsert(math_at(7, name="judge"))
    await asyncio.sleep(0.01)
    assert not any(pick.done() for pick in picks)
    starting = math_at(1)
    starting.health = discovery_pb2.HEALTH_NOT_SERVING
    directory.upsert(starting)
    await asyncio.sleep(0.01)
    assert not any(pick.done() for pick in picks)
    directory.replace([math_at(1)])
    assert {one.id for one in await asyncio.wait_for(asyncio.gather(*picks), 60)} == {"model-1"}


async def test_a_watched_directory_does_not_wait_for_ever() -> None:
    error = await asyncio.wait_for(_refusal(PeerDirectory(watched=True), "policy"), 60)
    assert "known model services: none" in error.message


async def test_instances_of_this_process_stay_through_a_registrys_changes(
    directory: PeerDirectory,
) -> None:
    probe = Probe()
    here = instance_at("direct:here", instance_id="here")
    directory.add_direct(here, {MODEL: probe})
    directory.upsert(math_at(1))
    directory.replace([math_at(2), instance_at("127.0.0.1:5", instance_id="here")])
    assert [one.id for one in directory.instances()] == ["here", "model-2"]
    directory.upsert(instance_at("127.0.0.1:6", instance_id="here"))
    directory.remove("here")
    directory.remove("never-there")
    assert directory.instances()[0] == here
    await directory.peer(here).CreateResponse(unary("ok"), timeout=60.0)
    assert len(probe.requests) == 1


async def test_a_direct_instance_added_anew_is_the_new_one(directory: PeerDirectory) -> None:
    first, second = Probe(), Probe()
    here = instance_at("direct:here", instance_id="here")
    for probe in (first, second):
        directory.add_direct(here, {MODEL: probe})
        await directory.peer(here).CreateResponse(unary("ok"), timeout=60.0)
    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_service_that_a_direct_instance_lacks(directory: PeerDirectory) -> None:
    here = instance_at("direct:here", instance_id="here")
    directory.add_direct(here, {MODEL: Probe()})
    with pytest.raises(MeshError, match="does not offer") as caught:
        directory.peer(here, DISCOVERY)
    assert caught.value.reason == errors_pb2.ERROR_REASON_NOT_OFFERED


async def test_an_instance_back_at_another_address_is_called_there(
    directory: PeerDirectory,
) -> None:
    first, second = Probe(), Probe()
    async with served({MODEL: first}) as one, served({MODEL: second}) as two:
        for address in (one, two):
            directory.upsert(instance_at(address))
            peer = directory.peer(await directory.pick(MODEL, "policy"))
            await peer.CreateResponse(unary("ok"), timeout=60.0)
        assert (len(first.requests), len(second.requests)) == (1, 1)
        await open_at(directory, [two])


async def test_channels_of_removed_instances_are_closed(directory: PeerDirectory) -> None:
    async with served({MODEL: Probe()}) as address:
        instance = instance_at(address)
        peer = directory.peer(instance)
        directory.upsert(instance)
        await peer.CreateResponse(unary("ok"), timeout=60.0)
        await open_at(directory, [address])
        directory.replace([])
        await open_at(directory, [])
        # Who still holds the peer can call, and leaves nothing open.
        await peer.CreateResponse(unary("ok"), timeout=60.0)
        await open_at(directory, [])
        # Listed again, it is as before.
        directory.upsert(instance)
        await directory.peer(instance).CreateResponse(unary("ok"), timeout=60.0)
        await open_at(directory, [address])


async def test_a_removal_does_not_cut_running_calls(directory: PeerDirectory) -> None:
    probe = Probe()
    async with served({MODEL: probe}) as address:
        instance = instance_at(address)
        directory.upsert(instance)
        frames = directory.peer(instance).StreamResponse(stream("drip"), timeout=60.0)
        async with aclosing(frames):
            assert (await anext(frames)).delta.output_index == 0
            directory.remove(instance.id)
            for index in range(1, 20):
                assert (await anext(frames)).delta.output_index == index
            await open_at(directory, [address])
        await asyncio.wait_for(probe.closed.wait(), 60)
        await open_at(directory, [])


async def test_two_instances_at_one_address_share_a_channel(directory: PeerDirectory) -> None:
    async with served({MODEL: Probe()}) as address:
        for one in ("a", "b"):
            directory.upsert(instance_at(address, instance_id=one))
        instance = await directory.pick(MODEL, "policy")
        await directory.peer(instance).CreateResponse(unary("ok"), timeout=60.0)
        directory.remove("a")
        await open_at(directory, [address])
        directory.remove("b")
        await open_at(directory, [])


@pytest.mark.parametrize("transport", ["auto", "plain"])
async def test_closing_the_directory_under_a_call_is_a_typed_failure(
    transport: TransportName,
) -> None:
    directory, probe = PeerDirectory(transport=transport), Probe()
    async with served({MODEL: probe}) as address:
        peer = directory.peer(instance_at(address))
        call = asyncio.create_task(peer.CreateResponse(unary("hang"), timeout=60.0))
        frames = peer.StreamResponse(stream("hang"), timeout=60.0)
        await anext(frames)
        await asyncio.wait_for(probe.started.wait(), 60)
        reading = asyncio.create_task(_drain(frames))
        await asyncio.wait_for(directory.close(), 60)
        for task in (call, reading):
            with pytest.raises(MeshError) as caught:
                await asyncio.wait_for(task, 60)
            assert caught.value.reason == errors_pb2.ERROR_REASON_PEER_UNAVAILABLE


@pytest.mark.parametrize("transport", ["auto", "plain"])
async def test_closing_the_directory_while_it_connects(transport: TransportName) -> None:
    with socket.socket() as mute:  # takes the connection and says nothing
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        directory = PeerDirectory(transport=transport)
        peer = directory.peer(instance_at(f"127.0.0.1:{mute.getsockname()[1]}"))
        call = asyncio.create_task(peer.CreateResponse(unary("ok"), timeout=60.0))
        await asyncio.sleep(0.1)
        await asyncio.wait_for(directory.close(), 60)
        with pytest.raises(MeshError) as caught:
            await asyncio.wait_for(call, 60)
        assert caught.value.reason == errors_pb2.ERROR_REASON_PEER_UNAVAILABLE


async def test_removed_while_it_connects_it_is_called_all_the_same(
    directory: PeerDirectory,
) -> None:
    async with served({MODEL: Probe()}) as address:
        instance = instance_at(address)
        directory.upsert(instance)
        calls = [
            asyncio.create_task(directory.peer(instance).CreateResponse(unary("ok"), timeout=60.0))
            for _ in range(20)
        ]
        for _ in range(10):  # into the connecting
            await asyncio.sleep(0)
        directory.remove(instance.id)
        await asyncio.wait_for(asyncio.gather(*calls), 60)
        await open_at(directory, [])


async def test_removed_and_listed_again_and_again_no_call_is_lost(
    directory: PeerDirectory,
) -> None:
    async with served({MODEL: Probe()}) as address:
        instance = instance_at(address)
        calls = []
        for turn in range(200):
            directory.upsert(instance)
            peer = directory.peer(instance)
            calls.append(asyncio.create_task(peer.CreateResponse(unary("ok"), timeout=60.0)))
            await asyncio.sleep(0 if turn % 3 else 0.005)
            directory.remove(instance.id)
        await asyncio.wait_for(asyncio.gather(*calls), 60)
        await open_at(directory, [])


async def _drain(frames: AsyncIterator[object]) -> None:
    async for _frame in frames:
        pass


async def test_one_that_cannot_be_reached_is_passed_over(directory: PeerDirectory) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        away = f"127.0.0.1:{nobody.getsockname()[1]}"
        async with served({MODEL: Probe()}) as there:
            for instance_id, address in (("away", away), ("there", there)):
                directory.upsert(instance_at(address, instance_id=instance_id))
            affinities = [f"r{number}" for number in range(32)]
            chosen = {key: directory.choose(MODEL, "policy", affinity=key) for key in affinities}
            lost = next(key for key, one in chosen.items() if one is not None and one.id == "away")
            instance = await directory.pick(MODEL, "policy", affinity=lost)
            with pytest.raises(MeshError) as caught:
                await directory.peer(instance).CreateResponse(unary("ok"), timeout=60.0)
            # The one failed call is enough for the others, whatever their affinity, and its own.
            other = await directory.instead(instance, caught.value, affinity=lost)
            assert other is not None
            assert other.id == "there"
            assert directory.passes_over(instance)
            for key in affinities:
                assert (await directory.pick(MODEL, "policy", affinity=key)).id == "there"
            await directory.peer(other).CreateResponse(unary("ok"), timeout=60.0)
            # The registry heard from it: it counts again.
            directory.upsert(instance)
            assert (await directory.pick(MODEL, "policy", affinity=lost)).id == "away"


async def test_one_that_goes_down_is_passed_over_and_other_errors_say_nothing(
    directory: PeerDirectory,
) -> None:
    first, second = math_at(1), math_at(2)
    directory.upsert(first)
    directory.upsert(second)
    full = MeshError(errors_pb2.ERROR_REASON_QUEUE_FULL, "the queue is full")
    assert await directory.instead(first, full) is None
    draining = MeshError(errors_pb2.ERROR_REASON_DRAINING, "it is shutting down")
    other = await directory.instead(first, draining)
    assert other is not None
    assert other.id == second.id
    assert await directory.instead(second, draining) is None  # no third one
    assert (await directory.pick(MODEL, "policy")).id in (first.id, second.id)  # better than none


async def test_while_the_registry_is_away_the_one_that_took_its_place_is_waited_for() -> None:
    directory = PeerDirectory(watched=True)
    gone, new = math_at(1), math_at(2)
    directory.replace([gone])
    draining = MeshError(errors_pb2.ERROR_REASON_DRAINING, "it is shutting down")
    assert await directory.instead(gone, draining, timeout=600.0) is None  # there is no other
    directory.outdated = True
    waiting = asyncio.create_task(directory.instead(gone, draining, timeout=600.0))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    directory.replace([gone, new])  # the registry is back
    async with asyncio.timeout(60):
        other = await waiting
    assert other is not None
    assert other.id == new.id
    # It is bounded, by time and by the registry's word that there is none.
    directory.outdated = True
    assert await directory.instead(new, draining, timeout=0.01) is None
    waiting = asyncio.create_task(directory.instead(new, draining, timeout=600.0))
    await asyncio.sleep(0.01)
    directory.replace([new])
    async with asyncio.timeout(60):
        assert await waiting is None


async def test_one_that_came_back_is_found_again(directory: PeerDirectory) -> None:
    port = free_port()
    gone = instance_at(f"127.0.0.1:{port}", instance_id="gone")
    async with served({MODEL: Probe()}) as there:
        directory.upsert(gone)
        directory.upsert(instance_at(there, instance_id="there"))
        with pytest.raises(MeshError):
            await directory.peer(gone).CreateResponse(unary("ok"), timeout=60.0)
        assert directory.passes_over(gone)
        async with served({MODEL: Probe()}, port):
            # Nobody says that it is back: calls try it now and then.
            async with asyncio.timeout(60):
                while directory.passes_over(gone) or not await _answers(directory):  # noqa: ASYNC110  # no event
                    await asyncio.sleep(0.02)
            assert not directory.passes_over(gone)


async def _answers(directory: PeerDirectory) -> bool:
    """Whether a call that was sent to the instance `gone` was answered."""
    for _ in range(2):
        chosen = await directory.pick(MODEL, "policy")
        if chosen.id == "gone":
            try:
                await directory.peer(chosen).CreateResponse(unary("ok"), timeout=60.0)
            except MeshError:
                return False
            return True
    return False
