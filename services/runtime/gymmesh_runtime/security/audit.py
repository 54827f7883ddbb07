"""A log line for each control action, and for each refused call.

The logger is `gymmesh.audit`. A line is a JSON object with `time`, `identity` (empty: unknown),
`method`, `target`, and `outcome` (OK, or the reason of the failure). A line has no secret. A lease
is a secret, so a digest of the lease is logged.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

from google.protobuf.message import DecodeError

from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import MethodSpec
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.telemetry import LogLimit

_log = logging.getLogger("gymmesh.audit")
_denials = LogLimit()
_MOST: Final = 200  # characters of what a caller wrote


#: What is an action, and what says on what it was.
ACTIONS: Final[Mapping[str, Callable[[Any, Any], dict[str, Any]]]] = {
    "gymmesh.run.v1.RunService/ControlRun": lambda request, _: {
        "run_id": request.run_id,
        "action": request.WhichOneof("command") or "",
    },
    "gymmesh.model.v1.ModelService/SetWeightsVersion": lambda request, _: {
        "version": request.version,
        **({"adapter": request.adapter} if request.adapter else {}),
        **({"loading_s": request.loading_s} if request.HasField("loading_s") else {}),
    },
    "gymmesh.discovery.v1.DiscoveryService/Register": lambda request, response: {
        "instance_id": request.instance.id,
        "address": request.instance.address,
        "lease": _digest("" if response is None else response.lease_id),
    },
    "gymmesh.relay.v1.RelayService/Offer": lambda request, response: {
        "instance_id": request.instance_id,
        "name": request.name,
        "address": "" if response is None else response.address,
    },
    "gymmesh.discovery.v1.DiscoveryService/Deregister": lambda request, _: {
        "lease": _digest(request.lease_id)
    },
}


def audited(spec: MethodSpec, handler: Any) -> Any:
    """A servicer's method that writes a line for each call. A method that is not an action is
    returned unchanged.
    """
    method = spec.full_name
    target = ACTIONS.get(method)
    if target is None:
        return handler

    async def handle(request: Any, context: CallContext) -> Any:
        response, outcome = None, "CANCELLED"
        try:
            response = await handler(request, context)
            outcome = "OK"
            return response
        except MeshError as error:
            outcome = error.reason_name
            raise
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            told = target(_read(spec, request), response)
            _write(context.identity, method, told, outcome)

    return handle


def _read(spec: MethodSpec, request: Any) -> Any:
    """The request; one that is passed on unread is read here. An empty one if it can't be read."""
    if not isinstance(request, bytes):
        return request
    try:
        return spec.request_class.FromString(request)
    except DecodeError:
        return spec.request_class()


def denied(identity: str, method: str, error: MeshError) -> None:
    """Logs a refused call. For refusals of the same kind, one line per second is written."""
    held_back = _denials.held_back((identity, method, error.reason_name))
    if held_back is not None:
        target = {"refused_before": held_back} if held_back else {}
        _write(identity, method, target, error.reason_name)


def _write(identity: str, method: str, target: Mapping[str, Any], outcome: str) -> None:
    line = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "identity": identity,
        "method": method,
        "target": {
            key: value[:_MOST] if isinstance(value, str) else value for key, value in target.items()
        },
        "outcome": outcome,
    }
    _log.info("%s", json.dumps(line))


def _digest(lease: str) -> str:
    return sha256(lease.encode("utf-8", "surrogatepass")).hexdigest()[:12] if lease else ""
