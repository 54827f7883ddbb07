"""What kubernetes-sigs/agent-sandbox is to the tests: its definitions, as far as its Python client
1.0.8 reads and writes them, and a stand-in for its controller.

A claim gets a sandbox of the pool that it names once one is ready; the sandbox's pod has its name.
A claim that is deleted takes both along, by owner references; one whose time is over is deleted.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from tests.kubernetes.cluster import START_S, ApiError, Cluster

CORE: Final = "agents.x-k8s.io"
EXTENSIONS: Final = "extensions.agents.x-k8s.io"
VERSION: Final = "v1beta1"
LABEL: Final = f"{CORE}/sandbox-name-hash"
_POLL_S: Final = 0.1
_OVERTAKEN: Final = (404, 409, 422)
Object = dict[str, Any]

_TEXT: Final = {"type": "string"}
_ANY: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_CONDITIONS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": dict.fromkeys(("type", "status", "reason", "message"), _TEXT),
    },
}


def _named(*names: str) -> Object:
    return {"type": "object", "properties": dict.fromkeys(names, _TEXT)}


_SCHEMAS: Final[dict[tuple[str, str, str], tuple[Object, Object]]] = {
    (EXTENSIONS, "SandboxTemplate", "sandboxtemplates"): ({"podTemplate": _ANY}, {}),
    (EXTENSIONS, "SandboxWarmPool", "sandboxwarmpools"): (
        {"replicas": {"type": "integer"}, "sandboxTemplateRef": _named("name")},
        {},
    ),
    (EXTENSIONS, "SandboxClaim", "sandboxclaims"): (
        {
            "warmPoolRef": _named("name") | {"required": ["name"]},
            "lifecycle": {
                "type": "object",
                "properties": {
                    "shutdownTime": {"type": "string", "format": "date-time"},
                    "shutdownPolicy": {"type": "string", "enum": ["Delete", "Retain"]},
                },
            },
        },
        {"sandbox": _named("name"), "conditions": _CONDITIONS},
    ),
    (CORE, "Sandbox", "sandboxes"): ({"podTemplate": _ANY}, {"conditions": _CONDITIONS}),
}


def define(cluster: Cluster) -> None:
    """Tells the API server of the four kinds."""
    for (group, kind, plural), (spec, status) in _SCHEMAS.items():
        properties = {"spec": {"type": "object", "properties": spec}}
        properties["status"] = {"type": "object", "properties": status}
        version = {
            "name": VERSION,
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        }
        definition = {
            "metadata": {
                "name": f"{plural}.{group}",
                # Groups below k8s.io are reviewed; the API server asks by whom.
                "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
            },
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "versions": [version],
            },
        }
        cluster.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        cluster.wait_for(f"/apis/{group}/{VERSION}/{plural}")
    _wait_for_the_collector(cluster)


def _wait_for_the_collector(cluster: Cluster) -> None:
    """Until what a claim owns is deleted with it: the garbage collector looks for new kinds now and
    then.
    """
    space = f"/apis/{EXTENSIONS}/{VERSION}/namespaces/default"
    body = {"apiVersion": f"{EXTENSIONS}/{VERSION}", "metadata": {"name": "probe"}}
    owner = cluster.call("POST", f"{space}/sandboxwarmpools", body | {"kind": "SandboxWarmPool"})
    owned = body | {"kind": "SandboxClaim"}
    owned["metadata"] = {"name": "probe", "ownerReferences": [_reference(owner)]}
    cluster.call("POST", f"{space}/sandboxclaims", owned)
    cluster.call("DELETE", f"{space}/sandboxwarmpools/probe")
    deadline = time.monotonic() + START_S
    while cluster.call("GET", f"{space}/sandboxclaims")["items"]:
        assert time.monotonic() < deadline, "nothing collects the objects of deleted owners"
        time.sleep(0.1)


class Controller:
    """Does what the controller does, in one namespace.

    Attributes:
        says: the reason of a claim's condition, by the name of its pool, instead of a sandbox.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.says: dict[str, str] = {}
        self._cluster = cluster
        self._namespace = namespace
        self._numbers = itertools.count()

    async def make_pool(self, name: str, replicas: int, pod: Object) -> None:
        """A template and a warm pool of it."""
        template = {"metadata": {"name": name}, "spec": {"podTemplate": {"spec": pod}}}
        await self._make("SandboxTemplate", "sandboxtemplates", template)
        spec = {"replicas": replicas, "sandboxTemplateRef": {"name": name}}
        await self._make(
            "SandboxWarmPool", "sandboxwarmpools", {"metadata": {"name": name}, "spec": spec}
        )

    async def follow(self) -> None:
        """Does what is to be done, again and again."""
        while True:
            try:
                sandboxes = await self.found(CORE, "sandboxes")
                for pool in await self.found(EXTENSIONS, "sandboxwarmpools"):
                    await self._fill(pool, sandboxes)
                for sandbox in sandboxes:
                    await self._look_at(sandbox)
                for claim in await self.found(EXTENSIONS, "sandboxclaims"):
                    await self._serve(claim)
            except ApiError as error:
                if error.code not in _OVERTAKEN:
                    raise
            await asyncio.sleep(_POLL_S)

    async def found(self, group: str, plural: str) -> list[Object]:
        """The objects of a kind."""
        listed: list[Object] = (await self._cluster.ask("GET", self._path(group, plural)))["items"]
        return listed

    async def _fill(self, pool: Object, sandboxes: list[Object]) -> None:
        free = [
            one for one in sandboxes if _owner(one) == ("SandboxWarmPool", pool["metadata"]["name"])
        ]
        for _ in range(pool["spec"]["replicas"] - len(free)):
            await self._make_sandbox(pool)

    async def _make_sandbox(self, pool: Object) -> None:
        name = f"{pool['metadata']['name']}-{next(self._numbers)}"
        path = self._path(
            EXTENSIONS, "sandboxtemplates", pool["spec"]["sandboxTemplateRef"]["name"]
        )
        template = (await self._cluster.ask("GET", path))["spec"]["podTemplate"]
        made = await self._make(
            "Sandbox",
            "sandboxes",
            {
                "metadata": {"name": name, "ownerReferences": [_reference(pool)]},
                "spec": {"podTemplate": template},
            },
            CORE,
        )
        pod = {
            "metadata": {
                "name": name,
                "labels": {LABEL: hashlib.sha256(name.encode()).hexdigest()[:8]},
                "ownerReferences": [_reference(made)],
            },
            "spec": copy.deepcopy(template["spec"]),
        }
        await self._cluster.ask("POST", f"/api/v1/namespaces/{self._namespace}/pods", pod)

    async def _look_at(self, sandbox: Object) -> None:
        name = sandbox["metadata"]["name"]
        pod = await self._cluster.ask("GET", f"/api/v1/namespaces/{self._namespace}/pods/{name}")
        phase = pod["status"].get("phase")
        ready = {"Running": ("True", "Ready"), "Failed": ("False", "PodFailed")}
        status, reason = ready.get(phase, ("False", "SandboxNotReady"))
        await self._tell(CORE, "sandboxes", sandbox, {"conditions": [_condition(status, reason)]})

    async def _serve(self, claim: Object) -> None:
        pool = claim["spec"]["warmPoolRef"]["name"]
        until = claim["spec"].get("lifecycle", {}).get("shutdownTime")
        if until and datetime.fromisoformat(until) <= datetime.now(UTC):
            await self._cluster.ask(
                "DELETE", self._path(EXTENSIONS, "sandboxclaims", claim["metadata"]["name"])
            )
        elif pool in self.says:
            condition = _condition("False", self.says[pool], "so it is")
            await self._tell(EXTENSIONS, "sandboxclaims", claim, {"conditions": [condition]})
        elif "sandbox" not in claim.get("status", {}):
            await self._bind(claim, pool)

    async def _bind(self, claim: Object, pool: str) -> None:
        free = [
            one
            for one in await self.found(CORE, "sandboxes")
            if _owner(one) == ("SandboxWarmPool", pool)
            and one.get("status", {}).get("conditions", [{}])[0].get("status") == "True"
        ]
        if not free:
            return
        name = free[0]["metadata"]["name"]
        owned = {"metadata": {"ownerReferences": [_reference(claim)]}}
        await self._cluster.ask("PATCH", self._path(CORE, "sandboxes", name), owned, "merge")
        status = {"sandbox": {"name": name}, "conditions": [_condition("True", "Ready")]}
        await self._tell(EXTENSIONS, "sandboxclaims", claim, status)

    async def _make(self, kind: str, plural: str, body: Object, group: str = EXTENSIONS) -> Object:
        body = {"apiVersion": f"{group}/{VERSION}", "kind": kind} | body
        made: Object = await self._cluster.ask("POST", self._path(group, plural), body)
        return made

    async def _tell(self, group: str, plural: str, one: Object, status: Object) -> None:
        if {key: one.get("status", {}).get(key) for key in status} != status:
            path = f"{self._path(group, plural, one['metadata']['name'])}/status"
            await self._cluster.ask("PATCH", path, {"status": status}, "merge")

    def _path(self, group: str, plural: str, name: str = "") -> str:
        path = f"/apis/{group}/{VERSION}/namespaces/{self._namespace}/{plural}"
        return f"{path}/{name}" if name else path


def _owner(one: Object) -> tuple[str, str]:
    (owner,) = one["metadata"].get("ownerReferences") or [{"kind": "", "name": ""}]
    return owner["kind"], owner["name"]


def _reference(one: Object) -> Object:
    metadata = one["metadata"]
    return {
        "apiVersion": one["apiVersion"],
        "kind": one["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _condition(status: str, reason: str, message: str = "") -> Object:
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


@asynccontextmanager
async def running_controller(cluster: Cluster, namespace: str) -> AsyncIterator[Controller]:
    """A controller that works while the context is open; what goes wrong in it ends the context."""
    one = Controller(cluster, namespace)
    async with asyncio.TaskGroup() as tasks:
        follows = tasks.create_task(one.follow())
        yield one
        follows.cancel()
