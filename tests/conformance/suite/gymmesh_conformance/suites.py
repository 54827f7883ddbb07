"""What can be tested, and how to run a suite over it.

A target knows the path to a server and what the suite may use there (the profile); it makes the
subject of the cases:

    ResourceTarget(path, profile)       an environment with its verifier
    ModelTarget(path, profile)          a model
    AgentTarget(path, world, profile)   an agent that finds the services of `world`
    DiscoveryTarget(path, profile)      a registry
    SandboxTarget(path, profile)        a sandbox service
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from gymmesh_conformance.cases import Case, Tag, load_cases, load_yaml, names_in, to_plain
from gymmesh_conformance.errors import CallError
from gymmesh_conformance.paths import AddressPath, Path
from gymmesh_conformance.runner import CaseResult, Stop, Subject, run_case
from gymmesh_conformance.scripted import World
from gymmesh_conformance.services import rpc
from gymmesh_conformance.steps import WirePath
from gymmesh_runtime.config import nearest

_ASK_S: Final = 10.0
#: Seconds that a slow call of a case takes, unless the profile says `slow_s`. Over 120, a client
#: that pings more often than it may is found out.
SLOW_S: Final = 0.5


class TargetError(Exception):
    """The target does not even say what it is; the sentence tells what to do."""


class Target(Protocol):
    """Something that a suite can be run over."""

    @property
    def suite(self) -> str:
        """`resource`, `model`, `agent`, `discovery` or `sandbox`."""

    async def subject(self) -> Subject:
        """Asks the server what it is. Raises TargetError."""


def load_profile(path: FilePath) -> dict[str, Any]:
    """Reads a profile: variables by name. Raises TargetError."""
    data = load_yaml(path)
    if not isinstance(data, dict):
        raise TargetError(f"{path}: a profile is a mapping of names; see profiles/capitals.yaml")
    return data


def check_profile(suite: str, profile: Mapping[str, Any]) -> None:
    """Raises TargetError for a key of a profile that the suite does not know."""
    valid = {"slow_s", *_OTHER_NAMES.get(suite, ())}
    for case in load_cases(suite):
        valid.update(need.removeprefix("not ") for need in case.needs)
        valid |= names_in((case.steps, dict(case.world)))
    for name in profile:
        if name not in valid:
            close = nearest(str(name), valid)
            hint = f"; {close}" if close.startswith("did") else ""
            raise TargetError(f"the profile has a key that the suite does not know: {name!r}{hint}")


#: Names of profiles by suite, besides those that its cases use.
_OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "agent": ("role",),
    "sandbox": ("image", "create", "web_server"),
}


class ResourceTarget:
    """An environment and its verifier, with the tasks and tools that its profile names."""

    suite = "resource"

    def __init__(self, path: Path, profile: Mapping[str, Any]) -> None:
        if "task" not in profile:
            raise TargetError("the profile of an environment names a `task` that it takes")
        self._path = path
        self._profile = profile

    async def subject(self) -> Subject:
        """See Target."""
        about = await _ask(self._path, "resource.GetEnvironment")
        flags = {key: about[key] for key in _ENVIRONMENT_FLAGS}
        asks = bool(about["models"])
        variables = {
            **_shared(self._path),
            "asks_a_judge": asks,
            **flags,
            "environment": about,
            **self._profile,
        }
        return Subject(self._path, variables)


_ENVIRONMENT_FLAGS: Final = ("multi_turn", "plays", "verify_needs_session", "judges_groups")


class ModelTarget:
    """A model, with the parameters that its profile names."""

    suite = "model"

    def __init__(self, path: Path, profile: Mapping[str, Any]) -> None:
        if "params" not in profile:
            raise TargetError("the profile of a model names `params` that it answers")
        self._path = path
        self._profile = profile

    async def subject(self) -> Subject:
        """See Target."""
        about = await _ask(self._path, "model.GetModel")
        variables = {**_shared(self._path), **about["capabilities"], "model": about}
        return Subject(self._path, {**variables, **self._profile})


class AgentTarget:
    """An agent that was told where the services of `world` are.

    The profile may hold `role`, the model role that it calls (default: the first that GetAgent
    names), `side_by_side` and `sends_deltas`.
    """

    suite = "agent"

    def __init__(self, path: Path, world: World, profile: Mapping[str, Any] | None = None) -> None:
        self._path = path
        self._world = world
        self._profile = profile or {}

    async def subject(self) -> Subject:
        """See Target."""
        about = await _ask(self._path, "agent.GetAgent")
        roles = about["model_roles"] or ["policy"]
        variables = {
            **_shared(self._path),
            "role": roles[0],
            "collect": about["collect"],
            "agent": about,
            "task": _task("conformance"),
            "task_with_turns": _task("conformance-turns"),
            "task_of_sums": _task("conformance-sum"),
            "task_to_run_once": _task("conformance-once"),
            "task_of_groups": _task("conformance-groups"),
            **self._profile,
        }
        return Subject(self._path, variables, self._world)


class DiscoveryTarget:
    """A registry. The profile may hold `short_leases`: it gives leases of two seconds."""

    suite = "discovery"

    def __init__(self, path: Path, profile: Mapping[str, Any] | None = None) -> None:
        self._path = path
        self._profile = profile or {}

    async def subject(self) -> Subject:
        """See Target."""
        await _ask(self._path, "discovery.ListInstances")
        return Subject(self._path, {**_shared(self._path), **self._profile})


class SandboxTarget:
    """A sandbox service. All names of the profile are optional.

    `image`: what sandboxes are made from (default: the service's own), `create`: more of
    CreateSandboxRequest for all of them, `python`: a Python 3 in it, `other_user`: a user of the
    image that is not its default, `web_server`: HOST:PORT of an HTTP server that the service's
    machine reaches and that answers `GET /` with 200, `hostile`: run the hostile cases, too.
    """

    suite = "sandbox"

    def __init__(self, path: Path, profile: Mapping[str, Any] | None = None) -> None:
        self._path = path
        self._profile = dict(profile or {})
        # What hostile programs must not reach, where the service runs on this machine.
        self._secret = _secret_file()

    async def subject(self) -> Subject:
        """See Target."""
        about = await _ask(self._path, "sandbox.GetService")
        image = self._profile.get("image") or about["default_image"]
        if not image:
            raise TargetError("the service has no default image: the profile names an `image`")
        limits = about["limits"]
        networks = about["capabilities"]["networks"]
        most = int(limits["max_output_bytes"])
        variables = {
            **_shared(self._path),
            **about["capabilities"],
            **{kind.removeprefix("NETWORK_KIND_").lower(): True for kind in networks},
            "service": about,
            "limits": limits,
            "image": image,
            "bounded_memory": int(limits["max_resources"]["memory_bytes"]) > 0,
            "kept_bytes": min(most, 3 << 20),
            "little_archives": int(limits["max_archive_bytes"]) <= _LITTLE,
            "little_answers": 0 < int(limits["max_port_bytes"]) <= _LITTLE,
            "bounded_output": 0 < most < 1 << 40,
            "host_secret": {"path": str(self._secret), "text": _SECRET.decode()},
            "http_server": (_PROGRAMS / "http_server.py").read_text(encoding="utf-8"),
            "ask_proxy": (_PROGRAMS / "ask_proxy.py").read_text(encoding="utf-8"),
            "web": _host_and_port(str(self._profile.get("web_server", ""))),
            "long_name": "long-name-" * 12,
            "long_word": "x" * 200_000,
            "host_port": _port(self._path),
            **self._profile,
        }
        variables["create"] = {"image": image, **self._profile.get("create", {})}
        return Subject(self._path, variables)


def _port(path: Path) -> str:
    """The port of the service at this machine; empty where it is not called by one."""
    return path.address.rpartition(":")[2] if isinstance(path, AddressPath) else ""


def _host_and_port(address: str) -> Mapping[str, Any]:
    """The parts of HOST:PORT; empty where it is neither."""
    host, _, port = address.rpartition(":")
    if not address:
        return {}
    if not host or not port.isdecimal():
        raise TargetError(f"web_server of the profile is {address!r}; write HOST:PORT")
    return {"host": host, "port": int(port)}


@cache
def _secret_file() -> FilePath:
    """A file that everybody on this machine may read; it goes when the process ends."""
    handle, name = tempfile.mkstemp(prefix="gymmesh-conformance-")
    with os.fdopen(handle, "wb") as file:
        file.write(_SECRET)
        os.fchmod(handle, 0o644)
    path = FilePath(name)
    atexit.register(path.unlink, missing_ok=True)
    return path


_PROGRAMS: Final = FilePath(__file__).parent / "programs"
_SECRET: Final = b"what no sandbox may read"
_LITTLE: Final = 64 << 20


def _shared(path: Path) -> dict[str, Any]:
    """What every suite may use: whether bytes can be sent as they are, and how long is long."""
    return {"wire": isinstance(path, WirePath), "slow_s": SLOW_S}


async def run_suite(
    target: Target,
    *,
    only: Iterable[str] = (),
    stop: Stop | None = None,
    report: Callable[[CaseResult], None] | None = None,
) -> list[CaseResult]:
    """Runs a suite's cases in order, or only those named.

    `stop` tells the server to go down, for one case about that: others are skipped. `report` is
    called with each result as it comes. Raises TargetError when the server does not say what it is,
    and LookupError for a case that there is not.
    """
    subject = dataclasses.replace(await target.subject(), stop=stop)
    # After a case that stops the server nobody is there.
    cases = sorted(select(target.suite, only), key=lambda case: "stop" in case.needs)
    results = []
    stopped_by = ""
    for case in cases:
        stops = subject.stop is not None and "stop" in case.needs
        if stops and stopped_by:
            lacks = f"another server: {stopped_by} stopped this one; pass --case {case.name}"
            result = CaseResult(case.suite, case.name, case.rule, "skipped", lacks=lacks)
        else:
            result = await run_case(case, subject)
        if stops and result.outcome != "skipped":
            stopped_by = case.name
        results.append(result)
        if report is not None:
            report(result)
    return results


def select(suite: str, only: Iterable[str] = ()) -> list[Case]:
    """A suite's cases, or those named. Raises LookupError for one that there is not."""
    wanted = list(only)
    cases = [case for case in load_cases(suite) if not wanted or case.name in wanted]
    missing = set(wanted) - {case.name for case in cases}
    if missing:
        raise LookupError(f"the suite '{suite}' has no case named {', '.join(sorted(missing))}")
    return cases


async def _ask(path: Path, name: str) -> dict[str, Any]:
    method = rpc(name)
    request: Message = method.request_class()
    try:
        return to_plain(await path.unary(method, request, _ASK_S))
    except CallError as error:
        raise TargetError(f"{name} failed: {error}; is the address right?") from None


def _task(environment: str) -> dict[str, Any]:
    text = "[case ${case}] What is the capital of France?"
    return {
        "task_id": "${case}",
        "environment": environment,
        "params": {"input": [{"message": {"role": "user", "text": text}}], "tools_omitted": True},
        "payload_json": Tag("json", {"case": "${case}", "expected": "secret-${case}"}),
    }
