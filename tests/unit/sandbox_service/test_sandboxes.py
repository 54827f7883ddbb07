"""How sandboxes come to be and how they end."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox import metrics
from gymmesh_sandbox.backends import OUT_OF_MEMORY
from tests.support.directory_sandboxes import DirectoryBackend
from tests.support.sandboxes import TIMEOUT, Box, ServedSandboxes, new_id, serve_sandboxes, until

_Reason = errors_pb2.ErrorReason


async def _refused(call: object) -> MeshError:
    with pytest.raises(MeshError) as refused:
        await call  # type: ignore[misc]  # of any call
    return refused.value


async def _gone(served: ServedSandboxes, box: Box) -> None:
    """A sandbox of which nothing is left."""
    await until(lambda: not any(box.id in name for name in served.backend.left))
    refused = await _refused(box.exec("true"))
    assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_NOT_FOUND


async def test_a_sandbox_whose_owner_is_gone_ends(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create(ttl_s=30)
        served.pass_time(29)
        assert (await box.exec("true")).exit.exit_code == 0
        served.pass_time(1)
        await _gone(served, box)


async def test_how_a_sandbox_ended_is_said(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        old = await served.create(ttl_s=30, resources={"life_s": 10})
        left = await served.create(ttl_s=30)
        removed = await served.create(ttl_s=60)
        running = asyncio.create_task(old.exec(shell="echo x; exec sleep 600"))
        await until(lambda: served.written(old.id))
        served.pass_time(10)
        lost = await _refused(running)
        assert lost.metadata["cause"] == "life"
        assert "the sandbox's lifetime of 10 s (resources.life_s) is over" in lost.message
        served.pass_time(20)
        request = sandbox_pb2.RemoveSandboxRequest(sandbox_id=removed.id)
        await served.peer.RemoveSandbox(request, timeout=TIMEOUT)
        for box, cause, why in (
            (old, "life", "the sandbox's lifetime of 10 s (resources.life_s) is over"),
            (left, "expired", "the sandbox's own lease was not renewed within 30 s (ttl_s)"),
            (removed, "removed", "an operator ended it"),
        ):
            refused = await _refused(box.exec("true"))
            assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_NOT_FOUND
            assert f"The sandbox has ended: {why}." in refused.message
            assert refused.metadata["cause"] == cause
        never = sandbox_pb2.AttachSandboxRequest(sandbox_id="sb-0", lease=b"x")
        refused = await _refused(served.peer.AttachSandbox(never, timeout=TIMEOUT))
        assert "This instance has no sandbox with this id." in refused.message
        assert "cause" not in refused.metadata


async def test_an_owner_learns_whether_others_use_a_sandbox(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create(ttl_s=600)

        async def used() -> int:
            request = sandbox_pb2.AttachSandboxRequest(**box.own)
            answer = await served.peer.AttachSandbox(request, timeout=TIMEOUT)
            return int(answer.sandbox.used_unix_nano)

        renew = sandbox_pb2.RenewLeaseRequest(**box.ids())
        await served.peer.RenewLease(renew, timeout=TIMEOUT)
        assert not await used(), "renewing is no use, and the owner's calls are none of others"
        await box.exec("true")
        first = await used()
        served.pass_time(5)
        assert await used() == first
        running = asyncio.create_task(box.exec(shell="echo x; exec sleep 600"))
        await until(lambda: served.written(box.id))
        served.pass_time(5)
        second = await used()
        served.pass_time(5)
        assert first < second < await used(), "while a program runs, it is in use"
        running.cancel()
        await asyncio.wait((running,))


async def test_renewing_the_own_lease_lets_it_last_up_to_its_life(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create(ttl_s=30, resources={"life_s": 50})
        served.pass_time(20)
        renew = sandbox_pb2.RenewLeaseRequest(**box.own)
        renewed = await served.peer.RenewLease(renew, timeout=TIMEOUT)
        assert renewed.expires_unix_nano == served.time.clock.unix_of(served.time.seconds + 30)
        # The operate lease was not renewed.
        served.pass_time(15)
        refused = await _refused(box.exec("true"))
        assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_LEASE_EXPIRED
        await served.peer.RenewLease(renew, timeout=TIMEOUT)
        served.pass_time(15)
        await _gone(served, box)


async def test_calls_that_run_when_it_ends_are_lost(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        running = asyncio.create_task(box.exec(shell="echo x; exec sleep 600"))
        await until(lambda: served.written(box.id))
        served.backend.gates["write"] = asyncio.Event()
        writing = asyncio.create_task(box.write(b"a", b""))
        await asyncio.sleep(0)
        await until(lambda: served.live(box.id)._calls)
        await box.end()
        for call in (running, writing):
            lost = await _refused(call)
            assert lost.reason == errors_pb2.ERROR_REASON_SANDBOX_LOST
            assert lost.metadata["sandbox_id"] == box.id


async def test_a_caller_that_goes_away_is_not_told_of_a_loss(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        served.backend.gates["write"] = asyncio.Event()
        writing = asyncio.create_task(box.write(b"a", b""))
        await until(lambda: served.live(box.id)._calls)
        writing.cancel()
        ending = asyncio.create_task(box.end())
        await asyncio.wait((writing, ending))
        assert writing.cancelled()


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("killed", errors_pb2.ERROR_REASON_SANDBOX_LOST),
        (OUT_OF_MEMORY, errors_pb2.ERROR_REASON_SANDBOX_OUT_OF_MEMORY),
    ],
)
async def test_a_sandbox_that_is_lost(
    tmp_path: Path, cause: str, reason: _Reason.ValueType
) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        running = asyncio.create_task(box.exec(shell="echo x; exec sleep 600"))
        await until(lambda: served.written(box.id))
        served.backend.made[box.id].lost.set_result(cause)
        assert (await _refused(running)).reason == reason
        await _gone(served, box)


async def test_ending_is_for_the_owner_and_may_be_asked_for_twice(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        request = sandbox_pb2.EndSandboxRequest(**box.ids())
        refused = await _refused(served.peer.EndSandbox(request, timeout=TIMEOUT))
        assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID
        served.backend.gates["end"] = asyncio.Event()
        first, second = asyncio.create_task(box.end()), asyncio.create_task(box.end())
        done, _ = await asyncio.wait((first, second), timeout=0.1)
        assert not done  # both answer once nothing is left
        served.backend.gates["end"].set()
        await asyncio.gather(first, second)
        await box.end()
        await _gone(served, box)


async def test_revoking_the_own_lease_ends_it(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        request = sandbox_pb2.RevokeLeaseRequest(**box.own)
        await served.peer.RevokeLease(request, timeout=TIMEOUT)
        await _gone(served, box)


async def test_operators_list_and_remove(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        boxes = [await served.create(labels={"for": "test"}) for _ in range(3)]
        first = await served.peer.ListSandboxes(
            sandbox_pb2.ListSandboxesRequest(page_size=2), timeout=TIMEOUT
        )
        rest = await served.peer.ListSandboxes(
            sandbox_pb2.ListSandboxesRequest(page_token=first.next_page_token), timeout=TIMEOUT
        )
        listed = [*first.sandboxes, *rest.sandboxes]
        assert [one.sandbox.sandbox_id for one in listed] == sorted(box.id for box in boxes)
        assert not rest.next_page_token
        for box in boxes:
            request = sandbox_pb2.RemoveSandboxRequest(sandbox_id=box.id)
            await served.peer.RemoveSandbox(request, timeout=TIMEOUT)
        assert served.backend.left == []


async def test_a_place_is_waited_for_and_the_queue_is_bounded(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path, places=1, max_waiting=1) as served:
        box = await served.create()
        waiting = asyncio.create_task(served.create())
        await until(lambda: served.waiting)
        full = await _refused(served.create())
        assert full.reason == errors_pb2.ERROR_REASON_SANDBOX_LIMIT
        assert full.retry_after_s is not None
        await box.end()
        assert (await (await waiting).exec("true")).exit.exit_code == 0


async def test_a_caller_that_goes_away_waits_for_no_place(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path, places=1, max_waiting=2) as served:
        first = await served.create()
        waiting = [asyncio.create_task(served.create()) for _ in range(2)]
        await until(lambda: served.waiting == 2)
        waiting[0].cancel()
        await until(lambda: served.waiting == 1)
        await first.end()
        assert (await (await waiting[1]).exec("true")).exit.exit_code == 0


async def test_a_call_waits_no_longer_than_its_deadline(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path, places=1) as served:
        box = await served.create()
        request = sandbox_pb2.CreateSandboxRequest(request_id=new_id())
        full = await _refused(served.peer.CreateSandbox(request, timeout=1.0))
        assert full.reason in (
            errors_pb2.ERROR_REASON_SANDBOX_LIMIT,
            errors_pb2.ERROR_REASON_DEADLINE_PASSED,  # on a machine that is much too slow
        )
        await until(lambda: not served.waiting)
        await box.end()
        # Nothing was done, so that the same request may come again.
        await served.peer.CreateSandbox(request, timeout=TIMEOUT)


async def test_a_start_that_takes_too_long_leaves_nothing(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        served.backend.gates["write"] = asyncio.Event()
        files = [{"path": b"a", "content": b"x"}]
        failed = await _refused(served.create(start_timeout_s=1, files=files))
        assert failed.reason == errors_pb2.ERROR_REASON_SANDBOX_START_TIMEOUT
        assert served.backend.left == []
        assert not served.taken


async def test_a_start_that_fails_leaves_nothing_and_may_be_asked_for_again(
    tmp_path: Path,
) -> None:
    async with serve_sandboxes(tmp_path) as served:
        served.backend.faults["write"] = [OSError("broken")]
        files = [{"path": b"a", "content": b"x"}]
        one = new_id()
        failed = await _refused(served.create(request_id=one, files=files))
        assert failed.reason == errors_pb2.ERROR_REASON_INTERNAL_FAULT
        assert served.backend.left == []
        assert not served.taken
        await served.create(request_id=one, files=files)


async def test_a_caller_that_goes_away_finds_its_sandbox_by_a_repeat(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        served.backend.gates["create"] = gate = asyncio.Event()
        one = new_id()
        caller = asyncio.create_task(served.create(request_id=one))
        await until(lambda: served.taken)
        caller.cancel()
        await asyncio.wait((caller,))
        gate.set()
        await served.create(request_id=one)
        assert len(served.backend.made) == 1


async def test_what_cannot_be_ended_at_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_sandbox.sandboxes._FIRST_PAUSE_S", 0.01)
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        served.backend.faults["end"] = [OSError("busy"), OSError("busy")]
        await box.end()
        assert served.backend.left == []
        assert not served.taken


async def test_draining_starts_nothing_more_and_lets_the_rest_be_used(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path, places=1) as served:
        box = await served.create()
        waiting = asyncio.create_task(served.create())
        await until(lambda: served.waiting)
        served.service.drain(30.0)
        for call in (waiting, served.create()):
            assert (await _refused(call)).reason == errors_pb2.ERROR_REASON_DRAINING
        assert (await box.exec("true")).exit.exit_code == 0
        going = asyncio.create_task(served.service.let_go())
        await box.end()
        await going
    assert served.backend.left == []


async def test_closing_ends_all(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        running = asyncio.create_task(box.exec(shell="echo x; exec sleep 600"))
        await until(lambda: served.written(box.id))
        request = sandbox_pb2.SnapshotSandboxRequest(**box.own, request_id=new_id())
        await served.peer.SnapshotSandbox(request, timeout=TIMEOUT)
    assert (await _refused(running)).reason == errors_pb2.ERROR_REASON_SANDBOX_LOST
    assert served.backend.left == []


async def test_a_fork_has_the_files_and_none_of_the_leases(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create(files=[{"path": b"a", "content": b"first"}])
        await box.write(b"a", b"changed")
        request = sandbox_pb2.ForkSandboxRequest(**box.own, request_id=new_id(), count=3)
        answer = await served.peer.ForkSandbox(request, timeout=TIMEOUT)
        assert answer == await served.peer.ForkSandbox(request, timeout=TIMEOUT)
        forks = [Box(served.peer, created) for created in answer.sandboxes]
        assert len({fork.id for fork in forks}) == 3
        await forks[0].write(b"a", b"own")
        found = [(await fork.exec("cat", "a")).stdout for fork in (box, *forks)]
        assert found == [b"changed", b"own", b"changed", b"changed"]
        refused = await _refused(forks[0].exec("true", lease=box.created.own_lease))
        assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID
        images = await served.backend.images()
        assert [image.name for image in images] == ["empty"]  # the snapshot is gone


async def test_all_forks_start_or_none(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path, places=4) as served:
        box = await served.create()
        served.backend.faults["create"] = [OSError("broken")]
        request = sandbox_pb2.ForkSandboxRequest(**box.own, request_id=new_id(), count=3)
        await _refused(served.peer.ForkSandbox(request, timeout=TIMEOUT))
        assert served.taken == 1
        assert len(served.backend.left) == 1
        await served.peer.ForkSandbox(request, timeout=TIMEOUT)
        assert served.taken == 4
        request.request_id, request.count = new_id(), 5
        refused = await _refused(served.peer.ForkSandbox(request, timeout=TIMEOUT))
        assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_LIMIT


async def test_snapshots_have_names_and_times(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        await box.write(b"a", b"kept")
        request = sandbox_pb2.SnapshotSandboxRequest(
            **box.own, request_id=new_id(), name="base", ttl_s=60
        )
        image = (await served.peer.SnapshotSandbox(request, timeout=TIMEOUT)).image
        assert (image.name, image.snapshot) == ("base", True)
        copy = await served.create(image="base")
        assert (await copy.exec("cat", "a")).stdout == b"kept"
        request.request_id = new_id()
        taken = await _refused(served.peer.SnapshotSandbox(request, timeout=TIMEOUT))
        assert taken.metadata["field"] == "name"
        served.pass_time(60)
        await until(lambda: "base" not in served.backend.left)
        gone = await _refused(served.create(image="base"))
        assert gone.reason == errors_pb2.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND


async def test_what_the_backend_cannot_give_is_refused_by_name(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        options: dict[str, dict[str, Any]] = {
            "resources.disk_bytes": {"resources": {"disk_bytes": 1}},
            "resources.cpu_millis": {"resources": {"cpu_millis": 1}},
            "network.open": {"network": {"open": {}}},
            "network.relay.port": {
                "network": {"relay": {"port": 8000, "service": "s", "name": "n"}}
            },
            "build": {"build": {"context": b"x"}},
            "process.cpu_s": {"process": {"shell": "true", "cpu_s": 1}},
        }
        for option, request in options.items():
            refused = await _refused(served.create(**request))
            assert refused.reason == errors_pb2.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED
            assert refused.metadata == {"option": option, "backend": "directory"}
        box = await served.create()
        refused = await _refused(box.exec("true", user="somebody"))
        assert refused.metadata["option"] == "process.user"


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("ttl_s", {"ttl_s": 10**9}),
        ("env", {"env": {"A=B": "x"}}),
        ("process.stdout_bytes", {"process": {"shell": "true", "stdout_bytes": 1 << 40}}),
        ("network.relay.socket_path", {"network": {"relay": {"socket_path": "a", "service": "s",
                                                            "name": "n"}}}),
    ],
)  # fmt: skip
async def test_what_is_too_much_is_refused(
    tmp_path: Path, field: str, request_: dict[str, object]
) -> None:
    async with serve_sandboxes(tmp_path) as served:
        refused = await _refused(served.create(**request_))
        assert refused.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
        assert refused.metadata["field"] == field


async def test_a_relay_has_a_socket_or_a_port(tmp_path: Path) -> None:
    async with serve_sandboxes(tmp_path) as served:
        served.backend.capabilities.relay_ports = True
        neither = {"network": {"relay": {"service": "s", "name": "n"}}}
        refused = await _refused(served.create(**neither))
        assert refused.reason == errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING


async def test_no_lease_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        secrets = [box.created.own_lease, box.created.grant.lease, await box.lend()]
        await _refused(box.exec("true", lease=b"guessed-lease"))
        await box.exec("true")
        await box.end()
    for secret in (*secrets, b"guessed-lease"):
        for shown in (secret.hex(), repr(secret), str(list(secret))):
            assert shown not in caplog.text


@pytest.mark.parametrize(
    ("cause", "counted"), [(OUT_OF_MEMORY, "out_of_memory"), ("its daemon is gone", "lost")]
)
async def test_its_own_memory_is_not_counted_as_a_loss(
    tmp_path: Path, cause: str, counted: str
) -> None:
    causes = {
        one: metrics.SANDBOXES_ENDED.labels("boxes", one) for one in ("out_of_memory", "lost")
    }
    before = {name: one.value for name, one in causes.items()}
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        served.backend.made[box.id].lost.set_result(cause)
        await _gone(served, box)
    assert {name for name, one in causes.items() if one.value > before[name]} == {counted}


async def test_what_is_left_over_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_sandbox.sandboxes._FIRST_PAUSE_S", 0.001)
    stuck, earlier = (
        metrics.SANDBOXES_LEFT.labels("boxes", cause) for cause in ("stuck", "earlier")
    )
    before = stuck.value, earlier.value

    async def end_two(backend: DirectoryBackend, instance_id: str) -> int:
        return 2

    monkeypatch.setattr(DirectoryBackend, "end_leftovers", end_two)
    async with serve_sandboxes(tmp_path) as served:
        assert earlier.value >= before[1] + 2
        box = await served.create()
        served.backend.faults["end"] = [OSError("busy")] * 4
        await box.end()
        assert stuck.value == before[0]
        box = await served.create()
        served.backend.faults["end"] = [OSError("busy")] * 5
        await box.end()
        assert stuck.value == before[0] + 1
        assert not served.taken


async def test_what_is_counted(tmp_path: Path) -> None:
    created = metrics.SANDBOXES_CREATED.labels("boxes", "ready")
    ended = metrics.SANDBOXES_ENDED.labels("boxes", "asked")
    before = created.value, ended.value
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create()
        assert metrics.SANDBOXES_RUNNING.labels("boxes").value == 1
        await box.exec("true")
        await box.end()
        assert metrics.SANDBOXES_RUNNING.labels("boxes").value == 0
    assert (created.value, ended.value) == (before[0] + 1, before[1] + 1)
    assert metrics.SANDBOXES_PROCESSES.labels().value == 0


async def test_a_process_in_a_sandbox_that_ends_is_no_result(tmp_path: Path) -> None:
    """A program that its sandbox took along has no exit that could be judged."""
    async with serve_sandboxes(tmp_path) as served:
        box = await served.create(ttl_s=30)
        process = await box.start(shell="echo x; exec sleep 600")
        listening = asyncio.create_task(box.wait(process))
        await until(lambda: served.written(box.id))
        served.pass_time(30)
        assert (await _refused(listening)).reason == errors_pb2.ERROR_REASON_SANDBOX_LOST
