"""The faces of a mesh: which methods each address serves, and what its callers know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from envoy.service.discovery.v3 import ads_pb2
from google.protobuf import message_factory
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from gymmesh_discovery.xds.names import TYPES
from gymmesh_runtime.contract import MethodSpec, methods_of
from tests.fuzz.good import Good
from tests.fuzz.mesh import Mesh, Place
from tests.fuzz.stock import Stock
from tests.fuzz.targets.rpc import Face
from tests.fuzz.values import Words

OF_KIND: Final = {
    "agent": ("gymmesh.agent.v1.AgentService",),
    "model": ("gymmesh.model.v1.ModelService",),
    "environment": ("gymmesh.resource.v1.ResourceService", "gymmesh.verify.v1.VerifyService"),
    "discovery": ("gymmesh.discovery.v1.DiscoveryService",),
}
_RESOURCES: Final = ("agent.fuzz1", "affinity.model.fuzz2", "resource.fuzz3", "agent.none", "*", "")


def face_of(mesh: Mesh, stock: Stock, place: Place, *, known: bool = True) -> Face:
    """The contract's services of a place. `known`: calls show who makes them."""
    shop = stock.shops.get(place.name) if place.kind == "environment" else None
    methods = [one for name in OF_KIND[place.kind] for one in methods_of(name).values()]
    words: dict[str, Any] = {
        "environment": [one.name for one in mesh.of("environment")],
        "model": [one.name for one in mesh.of("model")],
        "service": [name for names in OF_KIND.values() for name in names],
        "type_url": TYPES,
        "contract_version": ("1.0", "1.1", "2.0"),
    }
    if shop is not None:
        words["session_id"] = shop.sessions
        words["name"] = [tool.name for tool in shop.tools]
    shown = mesh.metadata() if known else ()
    return Face(place.address, methods, words, Good(stock, shop), metadata=shown)


def faces_of(mesh: Mesh, stock: Stock, *kinds: str, known: bool = True) -> list[Face]:
    """Those of all places of some kinds."""
    return [face_of(mesh, stock, one, known=known) for kind in kinds for one in mesh.of(kind)]


def control_plane(address: str) -> Face:
    """The xDS control plane of a discovery service."""
    words: Words = {
        "type_url": TYPES,
        "resource_names": _RESOURCES,
        "resource_names_subscribe": _RESOURCES,
        "resource_names_unsubscribe": _RESOURCES,
        "response_nonce": ("1", "2"),
    }
    return Face(address, list(_specs(ads_pb2, "AggregatedDiscoveryService")), words, own=False)


def library_faces(mesh: Mesh) -> list[Face]:
    """Health and reflection, of gRPC's own packages, at each address."""
    specs = [*_specs(health_pb2, "Health"), *_specs(reflection_pb2, "ServerReflection")]
    names = [name for names in OF_KIND.values() for name in names]
    words: Words = {
        "service": [*names, "", "grpc.health.v1.Health"],
        "file_containing_symbol": [*names, "google.protobuf.Any"],
        "file_by_filename": ["gymmesh/agent/v1/agent.proto", "google/protobuf/any.proto"],
        "all_extension_numbers_of_type": [*names, "google.protobuf.EnumValueOptions"],
        "containing_type": ["google.protobuf.EnumValueOptions"],
    }
    return [Face(one.address, specs, words, own=False) for one in mesh.places]


def _specs(module: Any, service: str) -> Iterable[MethodSpec]:
    """The methods of a service that is not of the contract."""
    descriptor = module.DESCRIPTOR.services_by_name[service]
    for method in descriptor.methods:
        request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        yield MethodSpec(
            name=method.name,
            full_name=f"{descriptor.full_name}/{method.name}",
            request_class=request,
            response_class=response,
            client_streaming=method.client_streaming,
            server_streaming=method.server_streaming,
            permission="",
            pack_request=request.SerializeToString,
            read_request=request.FromString,
            pack_response=response.SerializeToString,
            read_response=response.FromString,
        )
