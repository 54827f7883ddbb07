"""What the runtime reads from the descriptors: methods, streaming and required fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_runtime.contract import methods_of, required_fields
from gymmesh_runtime.errors import MeshError

PROTOS = Path(__file__).parents[3] / "proto/gymmesh"
_RPC = re.compile(r"^  rpc (\w+)\((stream )?(\w+)\)\s+returns \((stream )?(\w+)\)", re.MULTILINE)


def contract() -> dict[str, list[tuple[str, bool, str, bool, str]]]:
    """Every service of the .proto files: method, streams up, request, streams down, response."""
    services = {}
    for path in sorted(PROTOS.glob("*/v1/*.proto")):
        text = path.read_text()
        package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
        assert package is not None
        for name, body in re.findall(r"^service (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
            services[f"{package[1]}.{name}"] = [
                (rpc[0], bool(rpc[1]), rpc[2], bool(rpc[3]), rpc[4]) for rpc in _RPC.findall(body)
            ]
    return services


CONTRACT = contract()


def test_all_services_were_read() -> None:
    assert len(CONTRACT) == 10
    assert sum(len(methods) for methods in CONTRACT.values()) == 58


@pytest.mark.parametrize("service", sorted(CONTRACT))
def test_every_method_of_every_service_is_found(service: str) -> None:
    found = [
        (
            spec.name,
            spec.client_streaming,
            spec.request_class.DESCRIPTOR.name,
            spec.server_streaming,
            spec.response_class.DESCRIPTOR.name,
        )
        for spec in methods_of(service).values()
    ]
    assert found == CONTRACT[service]
    for name, spec in methods_of(service).items():
        assert spec.full_name == f"{service}/{name}"


@pytest.mark.parametrize("service", sorted(CONTRACT))
def test_message_classes_are_those_of_the_stubs(service: str) -> None:
    for spec in methods_of(service).values():
        module = __import__(spec.request_class.__module__, fromlist=["x"])
        assert getattr(module, spec.request_class.DESCRIPTOR.name) is spec.request_class


@pytest.mark.parametrize(
    "service",
    [
        "gymmesh.model.v1.Modelservice",
        "gymmesh.nothing.v1.NothingService",
        "grpc.health.v1.Health",
        "ModelService",
        "",
    ],
)
def test_what_is_not_in_the_contract_is_refused_by_name(service: str) -> None:
    with pytest.raises(LookupError, match=re.escape(f"'{service}'")):
        methods_of(service)


_PARAMS = responses_pb2.ResponseParams()
_INSTANCE = discovery_pb2.Instance(id="a")
_TASK = rollout_pb2.Task(task_id="t-1")
_STOP = rollout_pb2.STOP_REASON_MAX_STEPS


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        # A message field: presence counts, even of an empty one.
        (model_pb2.CreateResponseRequest(), "params"),
        (model_pb2.CreateResponseRequest(params=_PARAMS), None),
        # Fields of a sub-message count when that is set, at any depth.
        (model_pb2.StreamResponseRequest(), "call"),
        (model_pb2.StreamResponseRequest(call=model_pb2.CreateResponseRequest()), "call.params"),
        (
            model_pb2.CreateResponseRequest(
                params=_PARAMS,
                conversation=model_pb2.ConversationRef(
                    id="c", prefix_tokens=model_pb2.PrefixTokens(token_ids=b"\0\0\0\0")
                ),
            ),
            "conversation.prefix_tokens.item_ends",
        ),
        (
            model_pb2.CreateResponseRequest(
                params=_PARAMS, conversation=model_pb2.ConversationRef()
            ),
            "conversation.id",
        ),
        # Scalars without presence: the default value is not set.
        (model_pb2.AbortResponseRequest(), "request_id"),
        (model_pb2.AbortResponseRequest(request_id="r"), None),
        (
            discovery_pb2.RegisterRequest(instance=discovery_pb2.Instance(id="a")),
            "instance.service",
        ),
        # The first missing one in the order of the contract.
        (resource_pb2.CallToolRequest(), "session_id"),
        (resource_pb2.CallToolRequest(session_id="s"), "name"),
        (resource_pb2.CallToolRequest(session_id="s", name="n"), "request_id"),
        # Repeated: none at all, and inside each element.
        (verify_pb2.VerifyGroupRequest(task=_TASK), "members"),
        (
            verify_pb2.VerifyGroupRequest(
                task=_TASK,
                members=[
                    verify_pb2.GroupMember(rollout_id="r", stop_reason=_STOP),
                    verify_pb2.GroupMember(rollout_id="r"),
                ],
            ),
            "members[1].stop_reason",
        ),
        (agent_pb2.GetAgentRequest(), None),
    ],
)
def test_required_fields(message: Message, missing: str | None) -> None:
    assert required_fields(type(message))(message) == missing


def missing_in(message: Any) -> str | None:
    """The first REQUIRED field that is not set, as descriptors and fields say, one by one."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        is_set = message.HasField(field.name) if field.has_presence else bool(value)
        if "REQUIRED" in str(field.GetOptions()) and not is_set:
            return str(field.name)
        if field.message_type is None or field.message_type.GetOptions().map_entry or not is_set:
            continue
        parts = list(value) if field.is_repeated else [value]
        for index, part in enumerate(parts):
            missing = missing_in(part)
            if missing is not None:
                place = f"{field.name}[{index}]" if field.is_repeated else field.name
                return f"{place}.{missing}"
    return None


def fill(message: Any, draw: Callable[[int], int], depth: int) -> None:
    """Sets any of its fields, to any value that takes part in a check."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        count = draw(3)
        if field.message_type is not None:
            for _ in range(count if depth and field.is_repeated else min(count, depth, 1)):
                owned = getattr(message, field.name)
                part = owned.add() if field.is_repeated else owned
                if not field.is_repeated:
                    part.SetInParent()
                fill(part, draw, depth - 1)
        elif count:
            value = {field.CPPTYPE_STRING: "1", field.CPPTYPE_BOOL: True}.get(field.cpp_type, 1)
            value = b"1" if field.type == field.TYPE_BYTES else value
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)


@pytest.mark.parametrize("service", sorted(CONTRACT))
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_check_says_what_the_descriptors_say(service: str, data: st.DataObject) -> None:
    chance = data.draw(st.randoms(use_true_random=False))
    for spec in methods_of(service).values():
        message = spec.request_class()
        fill(message, lambda count: min(chance.randrange(count * 3), count), 3)
        assert required_fields(spec.request_class)(message) == missing_in(message)


def test_the_error_names_field_and_method() -> None:
    spec = methods_of("gymmesh.model.v1.ModelService")["StreamResponse"]
    with pytest.raises(MeshError, match=r"needs the field 'call'") as caught:
        spec.check(model_pb2.StreamResponseRequest())
    assert caught.value.metadata == {"field": "call", "method": spec.full_name}
    spec.check(
        model_pb2.StreamResponseRequest(call=model_pb2.CreateResponseRequest(params=_PARAMS))
    )


@pytest.mark.parametrize("service", sorted(CONTRACT))
def test_every_request_can_be_checked(service: str) -> None:
    """Recursive messages, maps and oneofs included: no check may raise or never end."""
    for spec in methods_of(service).values():
        empty = spec.request_class()
        missing = required_fields(spec.request_class)(empty)
        wanted = [
            field.name
            for field in spec.request_class.DESCRIPTOR.fields
            if "REQUIRED" in str(field.GetOptions())
        ]
        assert missing == (wanted[0] if wanted else None)
