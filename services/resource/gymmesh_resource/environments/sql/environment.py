"""Questions about a database, answered by a query; judged by what the query gives.

Task rows have an expected query (`gold_sql`; also `gt_sql`, `SQL`, `sql`, `query`) and a database:
statements that make it (`setup_sql`) or the name of a file (`database`; also `db_id`) in the
folder that the option `databases` gives, or else statements again (`schema`, `sql_context`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, TypeVarTuple

import msgspec

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, ToolError, Verdict
from gymmesh_resource.environments.blame import unless_always
from gymmesh_resource.environments.sql.bounds import QueryError, QueryLimits
from gymmesh_resource.environments.sql.execution import (
    Judged,
    check_query,
    find_empty,
    has_rows,
    judge,
    run_query,
    warm_up,
)
from gymmesh_resource.environments.sql.reading import find_query, find_query_as_nemo
from gymmesh_resource.environments.sql.rows import Question, read_question
from gymmesh_resource.environments.sql.table import shown
from gymmesh_resource.expected import ANSWER, Expected
from gymmesh_resource.tools import tool
from gymmesh_resource.workers import AnswerTooMuch
from gymmesh_runtime.extras import Extra

# Address space of a worker: Python, the engine's own limit (DuckDB reserves more), two results.
_MEMORY = {"sqlite": 1024**3, "duckdb": 4 * 1024**3}
# Characters of a query; longer ones are not run.
_LONGEST = 50_000
_ROWS = 100_000
_EMPTY = 'so a wrong query would count as right. If this is intended, set "allow_empty": true'
# Seconds of processor time between a query's own limit and the end of its process.
_GRACE = 5.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Seconds = Annotated[float, msgspec.Meta(gt=0, le=600)]


class SqlEnvironment(Environment[None]):
    """Questions about an SQLite or DuckDB database; tool: a read-only query.

    The reward is 1.0 when the answer's query gives the same result as the expected one, else 0.0.
    """

    version = "3"
    references = ("nemo",)
    verify_needs_session = False
    in_order = False
    examples = "tasks.jsonl"
    process_warm_up = warm_up

    def __init__(
        self,
        *,
        engine: Literal["sqlite", "duckdb"] = "sqlite",
        databases: str | None = None,
        comparison: Literal["auto", "multiset", "set"] = "auto",
        column_order: Literal["kept", "free"] = "kept",
        tolerance: Annotated[float, msgspec.Meta(ge=0, le=0.1)] = 1e-6,
        answer_from: Literal["message", "message_or_query"] = "message_or_query",
        shown_rows: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50,
        query_timeout_s: Seconds = 5.0,
        verdict_timeout_s: Seconds = 10.0,
        workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2,
    ) -> None:
        """Options.

        engine: what runs the queries; duckdb needs its package.
        databases: the folder of database files that rows name.
        comparison: of rows, as often as they occur or as sets; auto: as sets for rows with
            `gt_sql`, as their own benchmark does.
        column_order: whether columns may come in any order. tolerance: relative, of floats.
        answer_from: where the answer's query is looked for: in what the model wrote, or there
            and else in its last query that ran.
        shown_rows: rows of a result that the model sees.
        query_timeout_s, verdict_timeout_s: seconds of processor time for a query of the tool, and
            for each of the two of a verdict.
        workers: processes that run queries.
        """
        if engine == "duckdb":
            Extra("duckdb", ("duckdb",)).require("engine: duckdb")
        self._engine = engine
        self._databases = Path(databases) if databases is not None else None
        if self._databases is not None and not self._databases.is_dir():
            raise ValueError(f"databases: there is no folder {databases}.")
        self._rule = comparison
        self._columns = column_order
        self._tolerance = tolerance
        self._from_query = answer_from == "message_or_query"
        self._query_limits = QueryLimits(query_timeout_s, shown_rows)
        self._verdict_limits = QueryLimits(verdict_timeout_s, _ROWS)
        self.processes = workers
        self.process_memory = _MEMORY[engine]

    def check_task(self, task: Task) -> None:
        """The row must have a database and an expected query."""
        self._question(task)
        self.compat_of(task)

    async def create_state(self, task: Task, seed: int) -> None:
        """No state, but refuses a database that cannot be made, or on which any query may be
        right, now rather than at the end.
        """
        question = self._question(task)
        if question.may_be_empty:
            await self._check_database(question)
            return
        limits = self._verdict_limits
        try:
            empty = await self._run(
                find_empty, question.database, question.query, limits, seconds=2 * limits.seconds
            )
        except QueryError as error:
            if error.kind == "time":
                return  # the verdict will say so, and fail
            raise _fault(question, error) from None
        except AnswerTooMuch:
            await self._check_database(question)
            return  # of the query the verdict will say so
        if empty == "database":
            raise TaskInvalid(question.database_key, f"creates a database without rows, {_EMPTY}")
        if empty:
            raise TaskInvalid(question.query_key, f"returns no rows or only NULL, {_EMPTY}")

    async def _check_database(self, question: Question) -> None:
        """Raises `TaskInvalid` for a database that cannot be made."""
        limits = self._verdict_limits
        try:
            await self._run(has_rows, question.database, limits, seconds=limits.seconds)
        except (QueryError, AnswerTooMuch) as error:
            raise TaskInvalid(
                question.database_key, f"does not create a database: {error}"
            ) from None

    @tool
    async def query(self, session: Session[None], sql: str) -> dict[str, Any]:
        """Run one SELECT statement on the question's database and see its result.

        The tables are listed in sqlite_master. Nothing can be changed.

        Args:
            sql: the statement
        """
        if len(sql) > _LONGEST:
            raise ToolError(f"The query has {len(sql):,} characters. The limit is {_LONGEST:,}.")
        database = self._question(session.task).database
        limits = self._query_limits
        try:
            result = await self._run(run_query, database, sql, limits, True, seconds=limits.seconds)
        except QueryError as error:
            raise ToolError(str(error)) from None
        except AnswerTooMuch as error:
            raise ToolError(f"The query was stopped: {error}.") from None
        return shown(result)

    def expected(self, task: Task) -> Expected:
        """The row's expected query, in a fence."""
        return Expected(self._question(task).query, "sql", form=f"```sql\n{ANSWER}\n```")

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Compare what the answer's query gives with what the expected one gives."""
        answer = self._answer(rollout)
        if answer is None:
            return _worth_nothing("the answer has no query")
        if len(answer) > _LONGEST:
            return _worth_nothing("the query is too long")
        question = self._question(rollout.task)
        with rollout.stage("execute") as stage:
            judged = await self._judge(question, answer)
            stage.note = judged.reason
        return Verdict(
            float(judged.match),
            evidence={
                "sql": answer[:2_000],
                "reason": judged.reason,
                "expected_rows": judged.expected_rows,
                "answer_rows": judged.answer_rows,
            },
            explanation="the same result" if judged.match else judged.reason,
        )

    async def _judge(self, question: Question, answer: str) -> Judged:
        how = question.comparison(self._rule, self._columns, self._tolerance)
        limits = self._verdict_limits
        database, expected, once = question.database, question.query, limits.seconds
        try:
            # Which of the two had to be ended decides whether the model is to blame.
            return await unless_always(
                lambda: self._run(judge, database, expected, answer, how, limits, seconds=2 * once),
                lambda: self._run(check_query, database, expected, limits, seconds=once),
                "the expected query was stopped",
            )
        except AnswerTooMuch as error:
            return Judged(False, f"the query was stopped: {error}", 0, None)
        except QueryError as error:
            raise _fault(question, error) from None

    def _question(self, task: Task) -> Question:
        return read_question(task, self._databases, self._engine)

    def _answer(self, rollout: Rollout) -> str | None:
        if self.compat_of(rollout.task) == "nemo":
            return find_query_as_nemo(rollout.text)
        written = find_query(rollout.text)
        if written is not None or not self._from_query:
            return written
        for call in reversed(rollout.tool_calls):
            ran = call.output is not None and call.output.startswith('{"columns"')
            if call.name == "query" and ran and call.arguments is not None:
                sql = call.arguments.get("sql")
                return sql if isinstance(sql, str) else None
        return None

    async def _run(self, function: Callable[[*Ts], T], *arguments: *Ts, seconds: float) -> T:
        return await self.work_on_answer(function, *arguments, cpu_s=seconds + _GRACE)


def _worth_nothing(reason: str) -> Verdict:
    return Verdict(0.0, evidence={"reason": reason}, explanation=reason)


def _fault(question: Question, error: QueryError) -> Exception:
    """What a failing expected query is: the row's fault, or want of time."""
    if error.kind == "time":
        return TimeoutError(f"the expected query: {error}")
    if error.kind == "setup":
        return TaskInvalid(question.database_key, f"does not create a database: {error}")
    return TaskInvalid(question.query_key, f"cannot be run: {error}")
