"""The targets by name, each with the mesh that it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from tests.fuzz.faces import control_plane, face_of, faces_of, library_faces
from tests.fuzz.mesh import Mesh, Place, start
from tests.fuzz.stock import Stock
from tests.fuzz.targets.base import Target
from tests.fuzz.targets.http import Endpoint, HttpTarget, mcp_endpoint
from tests.fuzz.targets.mux import MuxTarget
from tests.fuzz.targets.rpc import RpcTarget
from tests.fuzz.targets.run import RunTarget
from tests.fuzz.targets.sockets import SocketTarget

#: The share of requests of many megabytes in long runs; short ones have none.
HUGE: Final = 0.001
_Make = Callable[[Mesh, Stock, bool], Target]


def _services(name: str, *kinds: str) -> _Make:
    def make(mesh: Mesh, stock: Stock, long: bool) -> Target:
        faces = faces_of(mesh, stock, *kinds)
        return RpcTarget(name, faces, mesh.channel, huge=HUGE if long else 0.0)

    return make


def _discovery(mesh: Mesh, stock: Stock, long: bool) -> Target:
    place = _spare_registry(mesh)
    faces = [face_of(mesh, stock, place), control_plane(place.address)]
    return RpcTarget("discovery", faces, mesh.channel, huge=HUGE if long else 0.0)


def _library(mesh: Mesh, stock: Stock, long: bool) -> Target:
    return RpcTarget("library", library_faces(mesh), mesh.channel, huge=HUGE if long else 0.0)


def _mux(mesh: Mesh, stock: Stock, long: bool) -> Target:
    faces = faces_of(mesh, stock, "agent", "model", "environment")
    return MuxTarget(
        "mux", [*faces, face_of(mesh, stock, _spare_registry(mesh))], mesh.channel, large=long
    )


def _http(mesh: Mesh, stock: Stock, long: bool) -> Target:
    metrics = [
        Endpoint(f"metrics {one.name}", one.metrics_address, (b"/metrics", b"/"))
        for one in mesh.places[:3]
    ]
    offered = [mcp_endpoint(shop) for shop in stock.shops.values() if shop.place.mcp_url]
    listed = Endpoint("http_sd", mesh.http_sd, (b"/v1/http-sd",))
    return HttpTarget("http", [*metrics, listed, *offered, *offered])


def _run(mesh: Mesh, stock: Stock, long: bool) -> Target:
    return RunTarget(mesh, stock, huge=HUGE if long else 0.0)


def _sockets(mesh: Mesh, stock: Stock, long: bool) -> Target:
    return SocketTarget("sockets", faces_of(mesh, stock, "agent", "model"), tls=False)


def _tls(mesh: Mesh, stock: Stock, long: bool) -> Target:
    return SocketTarget("tls", faces_of(mesh, stock, "agent", "model"), tls=True)


def _strangers(mesh: Mesh, stock: Stock, long: bool) -> Target:
    faces = faces_of(mesh, stock, "agent", "model", "environment", "discovery", known=False)
    huge = HUGE if long else 0.0
    return RpcTarget("strangers", faces, mesh.channel, huge=huge, admitted=False)


PLAIN: Final[Mapping[str, _Make]] = {
    "agent": _services("agent", "agent"),
    "resource": _services("resource", "environment"),
    "model": _services("model", "model"),
    "discovery": _discovery,
    "library": _library,
    "mux": _mux,
    "http": _http,
    "run": _run,
    "sockets": _sockets,
}
#: Those that need a mesh over TLS, whose callers must be known.
SECURED: Final[Mapping[str, _Make]] = {"tls": _tls, "strangers": _strangers}
TARGETS: Final = (*PLAIN, *SECURED)


@asynccontextmanager
async def opened(
    name: str, mesh: Mesh, stock: Stock, *, long: bool = False
) -> AsyncIterator[Target]:
    """A target that is ready."""
    make = SECURED[name] if mesh.secured else PLAIN[name]
    target = make(mesh, stock, long)
    await target.open()
    try:
        yield target
    finally:
        await target.close()


@asynccontextmanager
async def spare_registry(mesh: Mesh) -> AsyncIterator[None]:
    """A registry that no service of the mesh goes by, since whoever may register there may send
    all rollouts elsewhere.
    """
    started = await start(
        "registry", mesh.folder, "serve", "discovery", "--set", "discovery.xds=true", "--json"
    )
    try:
        said = await started.said()
        mesh.started.append(started)
        place = Place("discovery", "spare", said["address"], said["metrics_address"], 0, "")
        mesh.spare = place
        yield
    finally:
        await started.down()


def _spare_registry(mesh: Mesh) -> Place:
    assert mesh.spare is not None
    return mesh.spare
