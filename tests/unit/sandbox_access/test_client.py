"""The client of a sandbox service: what it repeats, what it keeps alive, what counts as lost."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path

import pytest

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import AGENT_PORT, RolloutAgent, SandboxSpec, SandboxUse
from gymmesh_sandbox_access.files import packed
from tests.unit.sandbox_access.stand_in import StandIn, client_of, error

BOX = SandboxSpec(image="small")


async def test_a_program_runs_with_its_input_and_output(tmp_path: Path) -> None:
    async with client_of(StandIn(tmp_path)) as boxes:
        box = await boxes.create(BOX)
        heard: list[tuple[str, bytes]] = []
        result = await box.exec(
            "cat; echo wrong >&2; exit 3", stdin="given", on_output=lambda *one: heard.append(one)
        )
        assert (result.exit_code, result.text, result.error_text) == (3, "given", "wrong\n")
        assert not result.ok
        assert b"".join(data for name, data in heard if name == "stdout") == b"given"
        assert (await box.exec(["printf", "%s", "a b"])).text == "a b"


async def test_a_stream_that_breaks_off_is_heard_again_without_running_again(
    tmp_path: Path,
) -> None:
    service = StandIn(tmp_path)
    service.faults["Exec"] = [error("PEER_UNAVAILABLE"), error("MUX_BROKEN")]
    async with client_of(service) as boxes:
        box = await boxes.create(BOX)
        heard: list[bytes] = []
        result = await box.exec(
            "echo once >>log; cat log", on_output=lambda _, data: heard.append(data)
        )
        assert result.text == "once\n"
        assert b"".join(heard) == b"once\n"
        assert service.calls["Exec"] == 3


async def test_a_lost_answer_makes_no_second_sandbox(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    service.faults["CreateSandbox"] = [error("PEER_UNAVAILABLE")]
    async with client_of(service) as boxes:
        await boxes.create(BOX)
        assert service.calls["CreateSandbox"] == 2
        assert len(service.leases) == 1


async def test_a_full_instance_is_followed_by_another(tmp_path: Path) -> None:
    full, free = StandIn(tmp_path, "boxes-0"), StandIn(tmp_path, "boxes-1")
    full.faults["CreateSandbox"] = [error("SANDBOX_LIMIT")] * 2
    async with client_of(full, free) as boxes:
        made = [await boxes.create(BOX) for _ in range(2)]
        assert {(await one.open()).instance_id for one in made} == {"boxes-1"}


@pytest.mark.parametrize(
    "reason", ["SANDBOX_NOT_FOUND", "PEER_UNAVAILABLE", "DEADLINE_PASSED", "SANDBOX_LOST"]
)
async def test_a_sandbox_that_is_gone_is_lost(tmp_path: Path, reason: str) -> None:
    service = StandIn(tmp_path)
    async with client_of(service) as boxes:
        failures: list[MeshError] = []
        box = boxes.sandbox(BOX, use=SandboxUse(failed=failures.append))
        await box.open()
        service.faults["WriteFiles"] = [error(reason)] * 4
        with pytest.raises(MeshError) as raised:
            await box.files.write("a.txt", "a")
        assert raised.value.reason_name == "SANDBOX_LOST"
        assert [one.reason_name for one in failures] == ["SANDBOX_LOST"]


async def test_a_program_that_ended_with_its_sandbox_has_no_result(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    service.ends_under = "echo almost"
    async with client_of(service) as boxes:
        box = await boxes.create(BOX)
        with pytest.raises(MeshError) as raised:
            await box.exec("echo almost")
        assert raised.value.reason_name == "SANDBOX_LOST"


async def test_a_mistake_of_the_caller_is_not_a_lost_sandbox(tmp_path: Path) -> None:
    async with client_of(StandIn(tmp_path)) as boxes:
        failures: list[MeshError] = []
        box = boxes.sandbox(BOX, use=SandboxUse(failed=failures.append))
        with pytest.raises(MeshError) as raised:
            await box.files.read("not there")
        assert raised.value.reason_name == "SANDBOX_FILE_NOT_FOUND"
        assert not failures


async def test_files_travel_in_pieces_and_are_read_again_where_a_stream_broke(
    tmp_path: Path,
) -> None:
    service = StandIn(tmp_path)
    async with client_of(service) as boxes:
        box = await boxes.create(BOX)
        large = bytes(range(256)) * 40_000
        await box.files.write_many({"large": large, "small": b"s", "sub/empty": b""})
        assert max(one.ByteSize() for one in service.requests) < 5 << 20
        service.faults["ReadFiles"] = [error("PEER_UNAVAILABLE"), error("PEER_UNAVAILABLE")]
        found = await box.files.read_many(["small", "large", "sub/empty"])
        assert found == {"small": b"s", "large": large, "sub/empty": b""}
        assert await box.files.read_text("small") == "s"


@pytest.mark.parametrize("field", ["memory_mb", "cpus", "pids", "life_s", "ttl_s"])
def test_an_amount_that_cannot_be_meant_is_named(field: str) -> None:
    for amount in (-1, 1 << 40, float("nan")):
        with pytest.raises(ValueError, match=rf"SandboxSpec\.{field} is "):
            SandboxSpec(**{field: amount})  # type: ignore[arg-type]  # of any amount


async def test_both_leases_are_renewed_while_a_sandbox_is_used(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with client_of(service) as boxes:
        box = await boxes.create(SandboxSpec(ttl_s=1))
        await service.until("RenewLease", 5)
        await box.end()
        assert not service.leases
        assert set(service.renewed) == {
            service.answers[key].own_lease for key in service.answers
        } | {service.answers[key].grant.lease for key in service.answers}


async def test_forks_that_nobody_has_used_yet_are_renewed_and_end_with_their_client(
    tmp_path: Path,
) -> None:
    service = StandIn(tmp_path)
    async with client_of(service) as boxes:
        box = await boxes.create(SandboxSpec(ttl_s=1))
        await box.fork(2)
        await service.until("RenewLease", 12)
        assert set(service.renewed) >= {answer.own_lease for answer in service.answers.values()}
    assert not service.leases


async def test_a_lease_that_cannot_be_renewed_is_noticed_without_a_call(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with client_of(service) as boxes:
        failed = asyncio.get_running_loop().create_future()
        box = boxes.sandbox(SandboxSpec(ttl_s=1), use=SandboxUse(failed=failed.set_result))
        await box.open()
        service.lose()
        async with asyncio.timeout(120):
            failure = await failed
        assert failure.reason_name == "SANDBOX_LOST"


async def test_what_a_client_made_ends_with_it_and_what_it_was_lent_does_not(
    tmp_path: Path,
) -> None:
    service = StandIn(tmp_path)
    async with client_of(service) as owner:
        box = await owner.create(BOX)
        grant = await box.grant("workspace")
        assert grant.role == "workspace"
        async with client_of(service) as guest:
            lent = guest.attach(grant)
            await lent.files.write("a", "from the guest")
            with pytest.raises(
                RuntimeError, match="was lent, so only the sandbox's owner can end it"
            ):
                await lent.end()
            with pytest.raises(
                RuntimeError, match="was lent, so only the sandbox's owner can end it"
            ):
                await guest.attach(grant).end()
            await lent.leave()
            with pytest.raises(MeshError, match="this process left the sandbox"):
                await lent.exec("true")
        assert await box.files.read_text("a") == "from the guest"
        await box.end()
        await box.end()
        with pytest.raises(MeshError, match="this process ended the sandbox"):
            await box.exec("true")
        await owner.create(BOX)
    assert not service.leases


async def test_a_sandbox_that_is_being_made_is_ended_too(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with client_of(service) as boxes:
        using = asyncio.create_task(boxes.sandbox(BOX).exec("true"))
        await service.until("CreateSandbox")
        using.cancel()
        await asyncio.wait([using])
    assert not service.leases


async def test_a_program_whose_caller_went_away_is_killed(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with client_of(service) as boxes:
        box = await boxes.create(BOX)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await box.exec("hang")
        await service.until("SignalProcess")
        (signal,) = (
            one for one in service.requests if isinstance(one, sandbox_pb2.SignalProcessRequest)
        )
        assert (signal.signal, signal.descendants) == (9, True)


async def test_a_plain_method_calls_from_its_thread(tmp_path: Path) -> None:
    async with client_of(StandIn(tmp_path)) as boxes:
        box = boxes.sandbox(BOX)
        result = await asyncio.to_thread(lambda: box.from_thread(box.exec("echo hi")))
        assert result.text == "hi\n"
        with pytest.raises(RuntimeError, match="await"):
            box.from_thread(box.exec("echo hi"))


async def test_no_lease_is_shown(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with client_of(service) as boxes:
        box = await boxes.create(BOX)
        (answer,) = service.answers.values()
        opened = box._connection.opened
        for lease in (answer.own_lease, answer.grant.lease):
            for shown in (repr(box), repr(opened), str(opened)):
                assert repr(lease)[2:-1] not in shown
                assert lease.hex() not in shown


def test_a_request_has_what_the_spec_says() -> None:
    inside = sandbox_pb2.AllowedHost(name="db.internal", ports=[5432], private=True)
    spec = SandboxSpec(
        image="py:1",
        cpus=0.5,
        memory_mb=2,
        network=["example.com", "*.example.org:8443", inside],
        files={"/work/a": "text"},
        life_s=9,
    )
    request = spec.request("r")
    assert request.image == "py:1"
    assert request.resources == sandbox_pb2.Resources(
        cpu_millis=500, memory_bytes=2 << 20, life_s=9
    )
    hosts = [(one.name, list(one.ports)) for one in request.network.hosts.hosts]
    assert hosts == [("example.com", []), ("*.example.org", [8443]), ("db.internal", [5432])]
    assert [one.private for one in request.network.hosts.hosts] == [False, False, True]
    assert [(one.path, one.content) for one in request.files] == [(b"/work/a", b"text")]
    assert SandboxSpec().request("r").network.WhichOneof("kind") == "none"
    for wrong in ("closed", ["host:x"], [":80"]):
        with pytest.raises(ValueError, match="network"):
            SandboxSpec(network=wrong).request("r")


def test_the_network_agent_is_a_relay_to_the_rollouts_agent() -> None:
    spec = SandboxSpec(network="agent")
    relay = spec.request("r", RolloutAgent("coder", "coder-1")).network.relay
    assert (relay.service, relay.name) == ("gymmesh.agent.v1.AgentService", "coder")
    assert (relay.instance_id, relay.address_key) == ("coder-1", "gateway")
    assert (relay.port, relay.socket_path) == (AGENT_PORT, "")
    # A sandbox that no agent works in reaches nothing.
    assert spec.request("r").network.WhichOneof("kind") == "none"


def test_a_local_folder_is_packed_without_its_owner(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("a")
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path))) as archive:
        members = archive.getmembers()
    assert [one.name for one in members] == ["sub", "sub/a.txt"]
    assert {(one.uid, one.uname) for one in members} == {(0, "")}
