"""Structured answers. Task rows are NeMo Gym's structured_outputs rows, versions 1 to 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypeVarTuple

import msgspec

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, Verdict
from gymmesh_resource.environments.blame import unless_always
from gymmesh_resource.environments.row_fields import one_of, text_or_none
from gymmesh_resource.environments.structured_outputs.parsing import FORMATS, TextFormat
from gymmesh_resource.environments.structured_outputs.sample_document import document_for, written
from gymmesh_resource.environments.structured_outputs.verdict import (
    SchemaError,
    SchemaResult,
    failed,
    judge,
    judge_arguments,
    load_schema,
    warm_up,
)
from gymmesh_resource.expected import Expected
from gymmesh_resource.workers import AnswerTooMuch
from gymmesh_responses import CodecError, bytes_to_text
from gymmesh_runtime.extras import Extra

# Tools whose names an explanation may give.
_NAMED = 20
Ts = TypeVarTuple("Ts")


class StructuredOutputsEnvironment(Environment[None]):
    """Answers that must match a JSON Schema; the reward is 1.0 for a match, else 0.0."""

    version = "3"
    references: ClassVar[tuple[str, ...]] = ("nemo",)
    examples = "tasks.jsonl"
    extra = Extra("structured-outputs", ("xmltodict",))
    # The library, and an answer of two million characters as a tree.
    process_memory = 1024**3
    process_warm_up = warm_up

    def __init__(
        self,
        *,
        xml_coerce_types: bool = True,
        judge_workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2,
        judge_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0,
    ) -> None:
        """Options.

        xml_coerce_types: whether text in XML is read as the numbers and booleans of the schema.
        judge_workers: processes that judge. judge_timeout_s: seconds of processor time for one
            judgement.
        """
        self._coerce_xml = xml_coerce_types
        self.processes = judge_workers
        self._timeout_s = judge_timeout_s

    def check_task(self, task: Task) -> None:
        """The row must have the schema as text, under `schema_str`."""
        field, schema = _schema(task)
        try:
            load_schema(schema, _format_of_answer(task), self.compat_of(task))
        except SchemaError as error:
            raise TaskInvalid(field, str(error)) from None
        text_or_none(task, "tool_name")
        text_or_none(task, "tool_payload_key")

    def call_other(self, session: Session[None], name: str, arguments: dict[str, Any]) -> str:
        """A call of one of the task's tools is the answer: nothing is run, and all is over."""
        session.finish()
        return ""

    def expected(self, task: Task) -> Expected | None:
        """A document that fits the row's schema."""
        document = document_for(_schema(task)[1])
        if document is None:
            return None
        if _mode(task) == "tool_call":
            name, key = text_or_none(task, "tool_name"), text_or_none(task, "tool_payload_key")
            arguments = {key: document} if key else document
            return Expected(kind="calls", calls=[(name or "", arguments)]) if name else None
        format = _format(task)
        text = written(document, format)
        return (
            None
            if text is None
            else Expected(text, "json" if format in ("json", "yaml") else "text")
        )

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Judge the text of the answer, or the arguments of the call that it is."""
        field, schema = _schema(rollout.task)
        with rollout.stage("validate") as stage:
            try:
                result = await self._judge(rollout, schema)
            except SchemaError as error:
                raise TaskInvalid(field, str(error)) from None
            stage.note = result.error
        return Verdict(
            result.reward,
            evidence={"error_type": result.error or None, "error_message": result.message or None},
            explanation=result.message or "the answer fits the schema",
        )

    async def _judge(self, rollout: Rollout, schema: str) -> SchemaResult:
        task = rollout.task
        compat = self.compat_of(task)
        if _mode(task) == "text":
            text, format = "".join(rollout.texts), _format(task)
            arguments = (schema, format, text, self._coerce_xml, compat)
            return await self._run(schema, judge, *arguments)
        name = text_or_none(task, "tool_name")
        calls = rollout.tool_calls
        called = ", ".join(call.name for call in calls[:_NAMED])
        if not calls:
            return failed("missing_tool_call", "the model called no tool")
        if len(calls) > 1:  # or a model would do best to call everything
            return failed("multiple_tool_calls", f"expected one call, got: {called}")
        if name and calls[0].name != name:
            return failed("wrong_tool_name", f"expected {name!r}, got: {called}")
        try:
            text = bytes_to_text(calls[0].arguments_json)
        except CodecError as error:
            return failed("tool_arguments_parse_error", error)
        key = text_or_none(task, "tool_payload_key")
        return await self._run(schema, judge_arguments, schema, text, key, compat)

    async def _run(
        self, schema: str, function: Callable[[*Ts], SchemaResult], *arguments: *Ts
    ) -> SchemaResult:
        seconds = self._timeout_s
        try:
            return await unless_always(
                lambda: self.work_on_answer(function, *arguments, cpu_s=seconds),
                lambda: self.work_on_answer(judge, schema, "json", "{}", cpu_s=seconds),
                "even a trivial answer could not be validated",
            )
        except AnswerTooMuch as error:
            return failed("validation_error", f"cannot be validated: {error}")


def _schema(task: Task) -> tuple[str, str]:
    """The schema and its key; the first version of these rows called it `schema`."""
    old = "schema_str" not in task.payload and isinstance(task.payload.get("schema"), str)
    field = "schema" if old else "schema_str"
    schema: str = task.require(field, str)
    return field, schema


def _format(task: Task) -> TextFormat:
    return one_of(FORMATS, task.payload.get("schema_type") or "json", "schema_type")


def _format_of_answer(task: Task) -> TextFormat:
    """The format of what is judged; a call's arguments are JSON."""
    format = _format(task)
    return "json" if _mode(task) == "tool_call" else format


def _mode(task: Task) -> Literal["text", "tool_call"]:
    match task.payload.get("response_mode"):
        case None | "text":
            return "text"
        case "tool_call":
            return "tool_call"
    raise TaskInvalid("response_mode", "must be 'text' or 'tool_call'")
