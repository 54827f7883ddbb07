"""A NeMo Gym server as its protocols call it: posts JSON, and raises errors of the mesh."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.environments.nemo_gym.client import Client, NoAnswer, ServerAnswer
from gymmesh_resource.errors import TaskInvalid
from gymmesh_responses import CodecError, loads
from gymmesh_runtime.errors import MeshError

Reason = errors_pb2.ErrorReason
FAULT: Final = Reason.ERROR_REASON_ENVIRONMENT_FAULT
VERIFIER_FAULT: Final = Reason.ERROR_REASON_VERIFIER_FAULT
# What a proxy answers for a server that is not there; the server's own errors are 500.
GATEWAY_STATUSES: Final = (502, 503, 504)
_SHOWN: Final = 300
_LOGGER = logging.getLogger("gymmesh.resource.nemo_gym")


class NemoServer:
    """One server. `connect` makes its client, inside an event loop; `url` is its root."""

    def __init__(self, url: str, connect: Callable[[], Client]) -> None:
        self.url = url
        self._connect = connect
        self._client: Client | None = None

    def open(self) -> None:
        """Get the HTTP client ready; the server may still be starting."""
        self._client = self._connect()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def post(
        self, name: str, body: Any, cookies: SimpleCookie, reason: Reason.ValueType
    ) -> ServerAnswer:
        """An answer of any status. Raises an error of the reason where there is none."""
        if self._client is None:
            raise RuntimeError("the environment is not open")
        try:
            return await self._client.post(name, body, cookies)
        except NoAnswer as error:
            raise self.error(name, str(error), reason) from error

    async def ask(
        self, name: str, body: Any, cookies: SimpleCookie, reason: Reason.ValueType
    ) -> dict[str, Any]:
        """The JSON object that is answered. Raises an error of the reason for anything else, and
        TaskInvalid where the server refuses a key of the row.
        """
        answer = await self.post(name, body, cookies, reason)
        if not answer.ok:
            raise self.refused(name, answer, reason)
        try:
            document = loads(answer.text)
        except CodecError:
            raise self.error(name, "its answer is not JSON", reason) from None
        if not isinstance(document, dict):
            raise self.error(name, "its answer is not a JSON object", reason)
        return document

    def refused(
        self, name: str, answer: ServerAnswer, reason: Reason.ValueType
    ) -> MeshError | TaskInvalid:
        """The error for an HTTP error; TASK_INVALID where the server names a key of the row."""
        key, problem = _bad_key(answer)
        if key and key.split(".")[0] != "response":
            return TaskInvalid(key, f"is rejected by the server's endpoint {name}: {problem}")
        detail = f": {key}: {problem}" if key else ""
        # The server's own text goes to the log: it may hold what must not be in a row.
        _LOGGER.error("%s/%s answered %d: %.2000s", self.url, name, answer.status, answer.text)
        return self.error(name, f"it answered {answer.status}{detail}", reason)

    def error(self, name: str, problem: str, reason: Reason.ValueType) -> MeshError:
        """An error of the reason, about one of the server's endpoints."""
        what = "verifier" if reason == VERIFIER_FAULT else "environment"
        return MeshError(
            reason,
            f"The NeMo Gym server at {self.url} failed in {name}: {problem}.",
            metadata={what: "nemo_gym", "stage": name},
        )


def _bad_key(answer: ServerAnswer) -> tuple[str, str]:
    """The key that a 422 of the server's framework (FastAPI) is about, and the problem."""
    if answer.status != 422:
        return "", ""
    try:
        detail = loads(answer.text)["detail"][0]
        place, problem = detail["loc"], str(detail["msg"])
        # The first part is "body".
        return ".".join(map(str, place[1:])), problem[:_SHOWN]
    except (CodecError, LookupError, TypeError):
        return "", ""
