"""The model service's failures: each typed by a reason of errors.proto, in one sentence.

Nothing here takes a URL's user info, a header or a key, so no secret can get into an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_responses import CodecError, Finish, finish_of
from gymmesh_runtime.config import ConfigError, nearest
from gymmesh_runtime.errors import MeshError, field_invalid

OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)


class AnswerInvalid(ValueError):
    """What an endpoint sent is not an answer; the text is the cause, without the model's name."""


def unsupported(parameter: str, why: str) -> MeshError:
    """PARAMETER_UNSUPPORTED: `parameter` is a path such as `tools[1].type`.

    The call runner adds the backend, which a conversion does not know.
    """
    return MeshError(
        errors.ERROR_REASON_PARAMETER_UNSUPPORTED,
        f"the parameter '{parameter}' is not supported: {why}",
        metadata={"parameter": parameter},
    )


def unreadable(error: CodecError) -> MeshError:
    """FIELD_INVALID for parameters that hold what JSON cannot."""
    return field_invalid("params", f"is not a Responses request: {error}")


def answer_invalid(model: str, cause: str) -> MeshError:
    """MODEL_ANSWER_INVALID."""
    return MeshError(
        errors.ERROR_REASON_MODEL_ANSWER_INVALID,
        f"the endpoint of model '{model}' sent an invalid response: {cause}",
        metadata={"model": model, "cause": cause},
    )


def answer_failed(model: str, finish_reason: object, told: str = "") -> MeshError:
    """MODEL_SERVER_ERROR for an answer that the endpoint itself reports as failed.

    finish_reason: the endpoint's finish reason. told: the endpoint's further text.
    """
    said = spelled_out(finish_reason)
    return MeshError(
        errors.ERROR_REASON_MODEL_SERVER_ERROR,
        f"the endpoint of model '{model}' ended its answer with finish_reason {said!r}, "
        f"which reports a failure{told}",
        metadata={"model": model, "finish_reason": said},
    )


def is_abort(error: MeshError) -> bool:
    """Whether the error says that the endpoint aborted the answer."""
    return finish_of(error.metadata.get("finish_reason")) is Finish.ABORTED


def spelled_out(finish_reason: object) -> str:
    """The reason as text for an error, at most 100 characters."""
    if isinstance(finish_reason, Mapping):
        finish_reason = finish_reason.get("type")
    return str(finish_reason)[:100]


def unreachable(model: str, cause: str, *, sent: bool = False) -> MeshError:
    """MODEL_UNREACHABLE. sent: whether the endpoint had been sent the request."""
    return MeshError(
        errors.ERROR_REASON_MODEL_UNREACHABLE,
        f"the endpoint of model '{model}' is unreachable or dropped the call: {cause}",
        metadata={"model": model, "cause": cause} | ({"sent": "true"} if sent else {}),
    )


def timed_out(model: str, seconds: float, where: str = "the endpoint did not answer") -> MeshError:
    """MODEL_TIMEOUT after `seconds`."""
    return MeshError(
        errors.ERROR_REASON_MODEL_TIMEOUT,
        f"model '{model}': {where} within {seconds:g} s",
        metadata={"model": model, "timeout_s": f"{seconds:g}"},
    )


def refused(model: str, why: str) -> MeshError:
    """MODEL_REQUEST_REFUSED by a backend of our own."""
    return MeshError(
        errors.ERROR_REASON_MODEL_REQUEST_REFUSED,
        f"model '{model}' cannot answer: {why}",
        metadata={"model": model},
    )


def misconfigured(name: str, problem: str) -> ConfigError:
    """For a configuration with which the model `name` cannot be opened."""
    return ConfigError(problem, path=f"models.{name}")


def options_of(name: str, options: dict[str, Any], kind: type[OptionsT]) -> OptionsT:
    """`options` of a model's configuration as the backend's own struct.

    Raises ConfigError, naming the option, when they do not fit.
    """
    for key in options:
        if key not in kind.__struct_fields__:
            problem = f"unknown option '{key}'; {nearest(key, kind.__struct_fields__)}"
            raise ConfigError(problem, path=f"models.{name}.options")
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error), path=f"models.{name}.options") from None
