"""Recorded answers instead of a model: for tests, benchmarks and re-collection.

`path` of the configuration names the recording; `gymmesh_model.backends.replay.recording` describes
its format and which call gets which answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path

import msgspec

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.backends.replay.recording import (
    RecordedAnswer,
    RecordedRow,
    Recording,
    RecordingError,
    read_recording,
)
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import answer_failed, misconfigured, options_of, refused, timed_out
from gymmesh_responses import CodecError, Finish, finish_of, response_from_json
from gymmesh_runtime.errors import MeshError

_MAX_COUNTED = 100_000


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of a `replay` model. delay_s: seconds added to every answer."""

    delay_s: float = 0.0


class ReplayBackend(Backend):
    """Answers from a recording that is read on `open`."""

    kind = "replay"
    names_model = False
    calls_endpoint = False
    needs_path = "the recording to answer from"
    is_recorded = True
    capabilities = model_pb2.ModelCapabilities(abort=True, images=True, tools=True)

    def __init__(self, name: str, config: ModelConfig) -> None:
        self._options: ReplayOptions = options_of(name, config.options, ReplayOptions)
        self._name = name
        self._path = Path(config.path or "")
        self._recording = Recording([])
        self._responses: dict[tuple[int, int], responses_pb2.Response] = {}
        # How often a failure with `times` came, by rollout, row and answer.
        self._failed: OrderedDict[tuple[str, int, int], int] = OrderedDict()
        self.endpoint_model = config.model or self._path.name

    async def open(self) -> None:
        try:
            recording = await asyncio.to_thread(read_recording, self._path)
            self._responses = {
                (row.index, number): response_from_json(answer.document)
                for row in recording.rows
                for number, answer in enumerate(row.answers)
            }
            for answer in (answer for row in recording.rows for answer in row.answers):
                if answer.error is not None:
                    _reason(str(answer.error["reason"]))
        except (RecordingError, CodecError) as error:
            raise misconfigured(self._name, str(error)) from None
        self._recording = recording

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        found = self._recording.find(call.params.get("input"), call.rollout_id)
        if found is None:
            raise refused(
                self._name,
                "no row of the recording matches a user message of this conversation; add a row "
                'for this conversation, or a row with "match": "*"',
            )
        row, number = found
        if number >= len(row.answers):
            raise refused(
                self._name,
                f"row {row.index + 1} of the recording has too few answers ({len(row.answers)}): "
                f"the rollout needs answer {number + 1}. Add an answer to the row",
            )
        answer = row.answers[number]
        delay = answer.delay_s + self._options.delay_s
        if delay > 0:
            await asyncio.sleep(min(delay, call.timeout))
        if delay > call.timeout:
            raise timed_out(self._name, call.timeout)
        if self._fails(call, row, number, answer):
            raise self._failure(answer)
        response = self._responses[row.index, number]
        why = response.incomplete_details.reason
        # An abort is kept: it was recorded of a caller that had asked for it.
        if response.status == "incomplete" and finish_of(why) is Finish.FAILED:
            raise answer_failed(self._name, why)
        return response

    def _fails(
        self, call: BackendCall, row: RecordedRow, number: int, answer: RecordedAnswer
    ) -> bool:
        if answer.error is None:
            return False
        if answer.failures is None:
            return True
        key = (call.rollout_id, row.index, number)
        count = self._failed.pop(key, 0) + 1
        self._failed[key] = count
        if len(self._failed) > _MAX_COUNTED:
            self._failed.popitem(last=False)
        return count <= answer.failures

    def _failure(self, answer: RecordedAnswer) -> MeshError:
        error = answer.error or {}
        told = {str(key): str(value) for key, value in (error.get("metadata") or {}).items()}
        retry_after = error.get("retry_after_s")
        return MeshError(
            _reason(str(error.get("reason"))),
            str(
                error.get("message")
                or f"model '{self._name}' fails at this call, because the recording has an error "
                "for this call"
            ),
            metadata={"model": self._name} | told,
            retry_after_s=None if retry_after is None else float(retry_after),
        )


def _reason(name: str) -> errors.ErrorReason.ValueType:
    try:
        return errors.ErrorReason.Value(f"ERROR_REASON_{name}")
    except ValueError:
        raise RecordingError(
            f"the error reason '{name}' does not exist; give a reason such as MODEL_SERVER_ERROR"
        ) from None
