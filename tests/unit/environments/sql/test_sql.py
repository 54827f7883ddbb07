"""Text to SQL: results compared, hostile queries held, queries found in answers, served."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Task, TaskInvalid
from gymmesh_resource.environments.sql import SqlEnvironment
from gymmesh_resource.environments.sql.bounds import Database, QueryError, QueryLimits
from gymmesh_resource.environments.sql.execution import judge, run_query, warm_up
from gymmesh_resource.environments.sql.reading import find_query, find_query_as_nemo, orders_rows
from gymmesh_resource.environments.sql.results import ComparisonRules, QueryResult, compare
from gymmesh_resource.environments.sql.table import shown
from gymmesh_resource.registry import example_tasks
from gymmesh_resource.workers import ProcessPool
from gymmesh_responses import dumps, items_from_json, new_message
from gymmesh_runtime.errors import MeshError
from tests.support.optional import Require
from tests.unit.resource.served import Served, served

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = yaml.load(
    (HERE / "verdicts.yaml").read_text("utf-8"), yaml.CSafeLoader
)
HOSTILE: list[dict[str, Any]] = yaml.load(
    (HERE / "hostile.yaml").read_text("utf-8"), yaml.CSafeLoader
)
SETUP = """
CREATE TABLE p (id INTEGER PRIMARY KEY, name TEXT, team TEXT, pay REAL);
INSERT INTO p VALUES (1, 'Ana', 'a', 10.0), (2, 'Bo', 'a', 20.0), (3, 'Cy', 'b', 20.0),
    (4, 'Di', 'b', NULL), (5, 'Émile', 'c', 0.3), (6, '', 'c', 30.0);
CREATE TABLE big (n);
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 500)
    INSERT INTO big SELECT n FROM r;
"""
ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"
PEOPLE = Database(script=SETUP)
LIMITS = QueryLimits(10.0, 1_000)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(case: dict[str, Any]) -> None:
    how = ComparisonRules(**({"ordered": orders_rows(case["expected"])} | case.get("how", {})))
    judged = judge(PEOPLE, case["expected"], case["answer"], how, LIMITS)
    assert float(judged.match) == case["reward"], judged.reason


def test_the_tables_are_large() -> None:
    assert len(CASES) >= 40
    assert len(HOSTILE) >= 40
    assert {case["reward"] for case in CASES} == {0, 1}


@pytest_asyncio.fixture(name="pool", scope="module", loop_scope="module")
async def _pool() -> AsyncIterator[ProcessPool]:
    async with ProcessPool(workers=1, warm_up=warm_up, memory_limit=1024**3) as pool:
        yield pool


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case["why"])
async def test_hostile(case: dict[str, Any], pool: ProcessPool) -> None:
    # As in the service: in a worker, whose end would be another exception than QueryError.
    seconds = 0.3 if case["kind"] == "time" else 20.0
    limits = QueryLimits(seconds, 1_000)
    if case["why"] == "a parameter":
        result = await pool.run(run_query, PEOPLE, "SELECT 1", limits, False, timeout=60.0)
        assert list(result.rows) == [(1,)]
    with pytest.raises(QueryError) as caught:
        await pool.run(run_query, PEOPLE, case["sql"], limits, False, timeout=60.0)
    assert caught.value.kind == case["kind"], caught.value.text
    after = await pool.run(
        run_query,
        PEOPLE,
        "SELECT count(*), sum(pay) FROM p",
        QueryLimits(60.0, 10),
        False,
        timeout=60.0,
    )
    assert after.rows[0][0] == 6


def test_a_file_is_read_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "people.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(SETUP)
    connection.close()
    before = path.read_bytes()
    database = Database(path=str(path))
    assert run_query(database, "SELECT count(*) FROM p", LIMITS, False).rows == [(6,)]
    for sql in ("DELETE FROM p", "VACUUM", "PRAGMA journal_mode = WAL", "CREATE TABLE q (x)"):
        with pytest.raises(QueryError, match=r"Only reading|SQLite says"):
            run_query(database, sql, LIMITS, False)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABL x",
        "ATTACH 'other.db' AS other; CREATE TABLE other.t (x);",
        "SELECT load_extension('x')",
        "CREATE TABLE t (x); INSERT INTO t VALUES (randomblob(100000000));",
    ],
)
def test_a_setup_that_fails(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError) as caught:
        run_query(Database(script=script), "SELECT 1", LIMITS, False)
    assert caught.value.kind == "setup"
    assert not list(tmp_path.iterdir())


def test_a_setup_that_never_ends_is_stopped() -> None:
    script = "CREATE TABLE t (x); WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    with pytest.raises(QueryError) as caught:
        run_query(
            Database(script=script + "INSERT INTO t SELECT max(n) FROM r;"),
            "SELECT 1",
            QueryLimits(0.3, 1),
            False,
        )
    assert caught.value.kind == "setup"


def test_settings_in_a_dump_do_no_harm_and_full_text_is_found() -> None:
    script = """PRAGMA foreign_keys = OFF; PRAGMA journal_mode = WAL; BEGIN TRANSACTION;
    CREATE VIRTUAL TABLE d USING fts5(t); INSERT INTO d VALUES ('red fox'), ('blue bird'); COMMIT;
    """
    result = run_query(
        Database(script=script), "SELECT t FROM d WHERE d MATCH 'fox'", LIMITS, False
    )
    assert list(result.rows) == [("red fox",)]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("```SQL\nSELECT 1;\n```", "SELECT 1;"),
        ("```sqlite\nSELECT 1\n```", "SELECT 1"),
        ("```\nSELECT 1\n```", "SELECT 1"),
        ("```sql SELECT 1```", "SELECT 1"),
        ("Try ```sql\nSELECT 1\n``` no, ```sql\nSELECT 2\n``` it is.", "SELECT 2"),
        ("```sql\nSELECT 1\n```\n```python\nprint(1)\n```", "SELECT 1"),
        ("```sql\nSELECT 1\n``` and ```sql\nSELECT 2", "SELECT 1"),
        ("```sql\nDROP TABLE p\n```", "DROP TABLE p"),
        ("SELECT 1", "SELECT 1"),
        ("  with q as (select 1) select * from q", "with q as (select 1) select * from q"),
        ("(SELECT 1)", "(SELECT 1)"),
        ("```sql\n\n```", None),
        ("```python\nprint(1)\n```", None),
        ("The query is SELECT 1.", None),
        ("```sql\nSELECT 1", "SELECT 1"),
        ("```mysql\nSELECT 1\n```", "SELECT 1"),
        ("```postgresql\nSELECT 1\n```", "SELECT 1"),
        ("```duckdb\nSELECT 1\n```", "SELECT 1"),
        ("```text\nSELECT 1\n```", "SELECT 1"),
        ("~~~sql\nSELECT 1\n~~~", "SELECT 1"),
        ("~~~~\nSELECT 1\n~~~~", "SELECT 1"),
        ("1. So:\n   ```sql\n   SELECT 1\n   ```", "SELECT 1"),
        ("```sql\n-- the sum\nSELECT 1\n```", "-- the sum\nSELECT 1"),
        ("```\n-- the sum\nSELECT 1\n```", "-- the sum\nSELECT 1"),
        ("```sql\nSELECT '~~~'\n```", "SELECT '~~~'"),
        ("It is `SELECT 1`, not `SELEC 1`.", "SELECT 1"),
        ("Selections are hard.", None),
        ("With this table you can count.", None),
        ("```python\nwith open('f') as f: pass\n```", None),
        ("```sql\nSELECT 1\n```\n```python\nwith open('f') as f: pass\n```", "SELECT 1"),
        ("", None),
        ("```", None),
    ],
)
def test_the_query_in_an_answer(text: str, query: str | None) -> None:
    assert find_query(text) == query


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("```sql\nSELECT 1\n``` no, ```SQL\nSELECT 2\n```", "SELECT 2"),
        ("```mysql\nSELECT 1\n```", None),
        ("```sql\nSELECT 1", None),
        ("SELECT 1", None),
    ],
)
def test_the_query_that_nemo_gym_finds(text: str, query: str | None) -> None:
    assert find_query_as_nemo(text) == query


def test_reading_is_linear() -> None:
    assert find_query("```" * 100_000) is None
    assert find_query("(" * 100_000 + "/*" * 100_000) is None
    assert find_query("/**/" * 100_000 + "`--\n" * 100_000) is None
    assert find_query("`~`" * 100_000) is None
    assert not orders_rows("'" * 100_001 + "(" * 100_000 + "/*" * 100_000 + '[`"')


CELLS = st.none() | st.integers(-3, 3) | st.sampled_from(["a", "b", "1"]) | st.floats(-2, 2)
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=8)


@given(ROWS, st.data())
def test_results_equal_themselves_however_they_are_ordered(rows: Any, data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(rows))
    turned = [row[::-1] for row in mixed]
    names = ("a", "b")
    assert compare(QueryResult(names, rows), QueryResult(names, mixed), ComparisonRules()) is None
    assert (
        compare(QueryResult(names, rows), QueryResult(names, mixed), ComparisonRules(rows="set"))
        is None
    )
    free = ComparisonRules(columns="free")
    assert compare(QueryResult(names, rows), QueryResult(names, turned), free) is None


@given(ROWS, st.tuples(CELLS, CELLS))
def test_a_further_row_is_noticed(rows: Any, row: Any) -> None:
    names = ("a", "b")
    assert (
        compare(QueryResult(names, rows), QueryResult(names, [*rows, row]), ComparisonRules())
        is not None
    )


def test_large_results_are_compared() -> None:
    rows = [(n, n / 7, "x") for n in range(100_000)]
    moved = [(n, n / 7 * (1 + 1e-12), "x") for n in reversed(range(100_000))]
    names = ("a", "b", "c")
    assert compare(QueryResult(names, rows), QueryResult(names, moved), ComparisonRules()) is None
    wide = tuple(str(n) for n in range(60))
    same = QueryResult(wide, [(1,) * 60] * 3)
    other = QueryResult(wide, [(1,) * 60] * 2 + [(2,) * 60])
    assert compare(same, other, ComparisonRules(columns="free")) == "other rows"


def test_what_the_model_sees_is_bounded() -> None:
    result = QueryResult(("a",), [("x" * 10_000,), (b"\0" * 10_000,), (float("inf"),)] * 100)
    answer = shown(result)
    assert len(json.dumps(answer)) < 50_000
    assert "first" in answer["note"]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "gold_sql"),
        ({"gold_sql": 1}, "gold_sql"),
        ({"gold_sql": " ", "setup_sql": ""}, "gold_sql"),
        ({"gold_sql": "SELECT 1"}, "setup_sql"),
        ({"gold_sql": "SELECT 1", "setup_sql": []}, "setup_sql"),
        ({"gt_sql": "SELECT 1", "db_id": "people"}, "db_id"),
        ({"gold_sql": "SELECT 1", "setup_sql": "", "allow_empty": 1}, "allow_empty"),
        ({"sql": "SELECT 1", "sql_context": "", "sql_dialect": "mysql"}, "sql_dialect"),
        ({"gold_sql": "SELECT 1", "db_id": "x", "condition_cols": []}, "condition_cols"),
        ({"gold_sql": "SELECT 1", "db_id": "x", "ignore_order": True}, "ignore_order"),
    ],
)
def test_a_malformed_row_is_named(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskInvalid) as caught:
        SqlEnvironment().check_task(Task(make_task(payload)))
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["../people", "/etc/passwd", "", ".hidden", "a/b", "none"])
def test_only_files_of_the_folder_are_found(name: str, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "people.sqlite").touch()
    environment = SqlEnvironment(databases=str(tmp_path / "inner"))
    with pytest.raises(TaskInvalid):
        environment.check_task(Task(make_task({"gold_sql": "SELECT 1", "database": name})))


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no folder"):
        SqlEnvironment(databases="/nowhere/at/all")


async def test_served(tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    with sqlite3.connect(tmp_path / "people" / "people.sqlite") as connection:
        connection.executescript(SETUP)
    connection.close()
    # As NeMo Gym's bird_sql has it: rows are compared as sets there.
    bird = make_task({"gt_sql": "SELECT team FROM p", "db_id": "people", "question": "Teams?"})
    ours = make_task({"gold_sql": "SELECT team FROM p", "database": "people"})
    environment = SqlEnvironment(databases=str(tmp_path), workers=1, shown_rows=2)
    async with served(environment) as mesh:
        session = (await mesh.create(bird)).session_id
        found = await mesh.call(session, "query", {"sql": "SELECT id FROM p"})
        assert json.loads(found.text)["rows"] == [[1], [2]]
        for sql, hint in (("DROP TABLE p", b"reading"), ("SELECT x" + " " * 60_000, b"characters")):
            refused = await mesh.call(session, "query", {"sql": sql})
            assert refused.outcome == rollout_pb2.TOOL_OUTCOME_TOOL_ERROR
            assert hint in refused.text
        answer = "```sql\nSELECT DISTINCT team FROM p\n```"
        assert await reward(mesh, bird, answer) == 1.0
        assert await reward(mesh, ours, answer) == 0.0
        assert await reward(mesh, ours, "I do not know.") == 0.0
        await bad_rows(mesh)
        await last_query(mesh, ours)


async def bad_rows(mesh: Served) -> None:
    broken = make_task({"gold_sql": "SELECT 1", "setup_sql": "CREATE TABL"})
    with pytest.raises(MeshError) as caught:
        await mesh.create(broken)
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert caught.value.metadata["field"] == "setup_sql"
    wrong = make_task({"gold_sql": "SELECT x", "setup_sql": SETUP})
    with pytest.raises(MeshError) as caught:
        await mesh.verify(of=wrong, transcript=[new_message("assistant", "SELECT 1")])
    assert caught.value.metadata["field"] == "gold_sql"


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"gold_sql": "SELECT 1", "setup_sql": ""}, "setup_sql"),
        ({"gold_sql": "SELECT x FROM t", "setup_sql": "CREATE TABLE t (x)"}, "setup_sql"),
        (
            {"gold_sql": "SELECT count(*) FROM t", "sql_context": "CREATE TABLE t (x)"},
            "sql_context",
        ),
        ({"gold_sql": "SELECT id FROM p WHERE 0", "setup_sql": SETUP}, "gold_sql"),
        ({"sql": "SELECT max(id) FROM p WHERE 0", "setup_sql": SETUP}, "sql"),
        ({"gold_sql": "SELECT id FROM p LIMIT 0", "db_id": "people"}, "gold_sql"),
        ({"gold_sql": "SELECT id FROM p", "db_id": "empty"}, "db_id"),
    ],
)
async def test_a_row_on_which_a_wrong_query_is_right_is_refused(
    payload: dict[str, Any], field: str, tmp_path: Path
) -> None:
    for name, script in (("people", SETUP), ("empty", "CREATE TABLE p (id)")):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as connection:
            connection.executescript(script)
    async with served(SqlEnvironment(workers=1, databases=str(tmp_path))) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(make_task(payload))
        assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
        assert caught.value.metadata["field"] == field
        assert "allow_empty" in caught.value.message
        await mesh.create(make_task(payload | {"allow_empty": True}))


async def test_an_excerpt_for_the_prompt_is_no_database(tmp_path: Path) -> None:
    """Rows of NeMo Gym's bird_sql have both, and are judged by the database."""
    with closing(sqlite3.connect(tmp_path / "people.sqlite")) as connection:
        connection.executescript(SETUP)
    row = {"gt_sql": "SELECT id FROM p WHERE team = 'a'", "db_id": "people",
           "sql_context": "BEGIN TRANSACTION; CREATE TABLE p (id INTEGER); ..."}  # fmt: skip
    bird = make_task(row)
    async with served(SqlEnvironment(workers=1, databases=str(tmp_path))) as mesh:
        await mesh.create(bird)
        assert await reward(mesh, bird, "SELECT 1 UNION SELECT 2") == 1.0
        assert await reward(mesh, bird, "SELECT 1 WHERE 0") == 0.0
    with pytest.raises(TaskInvalid) as caught:
        SqlEnvironment().check_task(Task(bird))
    assert caught.value.field == "db_id"


async def last_query(mesh: Served, task: rollout_pb2.Task) -> None:
    """Without a query in the answer, the last one that ran counts."""

    def call(number: int, sql: str, output: str) -> list[dict[str, Any]]:
        arguments = json.dumps({"sql": sql})
        made = {"type": "function_call", "name": "query", "arguments": arguments}
        return [
            {**made, "call_id": str(number)},
            {"type": "function_call_output", "call_id": str(number), "output": output},
        ]

    for second in (2, 1):  # some models give the same id in every answer
        ran = call(1, "SELECT team FROM p", '{"columns":["team"],"rows":[]}')
        failed = call(second, "SELECT x FROM p", "SQLite says: no such column: x.")
        items = list(items_from_json(dumps(ran + failed)))
        assert (await mesh.verify(of=task, transcript=items)).reward == 1.0


async def test_an_endless_query_is_judged() -> None:
    script = "CREATE TABLE t (x); INSERT INTO t VALUES (1);"
    task = make_task({"gold_sql": "SELECT 1", "setup_sql": script})
    environment = SqlEnvironment(workers=1, verdict_timeout_s=1.0)
    async with served(environment) as mesh:
        assert await reward(mesh, task, ENDLESS) == 0.0
        assert await reward(mesh, task, "SELECT 1") == 1.0


async def test_the_example_tasks_are_won_by_their_own_queries() -> None:
    environment = SqlEnvironment(workers=1)
    tasks = example_tasks(environment, "e")
    assert len(tasks) >= 5
    async with served(environment) as mesh:
        for task in tasks:
            await mesh.create(task)
            assert await reward(mesh, task, Task(task).payload["gold_sql"]) == 1.0
            assert await reward(mesh, task, "SELECT 'nothing'") == 0.0


@pytest.fixture(name="duckdb")
def _duckdb(require: Require) -> None:
    found = importlib.util.find_spec("duckdb") is not None
    require(found, "duckdb", "pip install 'gymmesh[duckdb]'")


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
            "time",
        ),
        ("SELECT * FROM range(100000000)", "rows"),
        ("SELECT * FROM read_csv('/etc/passwd')", "sql"),
        ("SELECT * FROM '/etc/passwd'", "sql"),
        ("COPY p TO 'copy.csv'", "sql"),
        ("ATTACH 'other.db'", "sql"),
        ("EXPORT DATABASE 'copy'", "sql"),
        ("INSTALL httpfs", "sql"),
        ("LOAD httpfs", "sql"),
        ("SET memory_limit = '10GB'", "sql"),
        ("PRAGMA memory_limit = '10GB'", "sql"),
        ("DROP TABLE p", "sql"),
        ("INSERT INTO p VALUES (7)", "sql"),
        ("SELECT 1; SELECT 2", "sql"),
        ("", "sql"),
        ("SELEC 1", "sql"),
        ("SELECT \ud800", "sql"),
    ],
)
def test_hostile_on_duckdb(duckdb: None, sql: str, kind: str) -> None:
    database = Database(script="CREATE TABLE p (a INTEGER)", engine="duckdb")
    limits = QueryLimits(0.5 if kind == "time" else 20.0, 1_000)
    with pytest.raises(QueryError) as caught:
        run_query(database, sql, limits, False)
    assert caught.value.kind == kind, caught.value.text


def test_a_duckdb_file_is_read_and_never_written(duckdb: None, tmp_path: Path) -> None:
    import duckdb as library

    path = tmp_path / "people.duckdb"
    with library.connect(path) as connection:
        connection.execute("CREATE TABLE p AS SELECT 7 AS a")
    before = path.read_bytes()
    database = Database(path=str(path), engine="duckdb")
    assert list(run_query(database, "SELECT a FROM p", LIMITS, False).rows) == [(7,)]
    with pytest.raises(QueryError):
        run_query(database, "DELETE FROM p", LIMITS, False)
    assert path.read_bytes() == before
    with pytest.raises(QueryError) as caught:
        run_query(Database(path="/no/such", engine="duckdb"), "SELECT 1", LIMITS, False)
    assert caught.value.kind == "setup"


async def test_served_on_duckdb(duckdb: None) -> None:
    setup = "CREATE TABLE p (a DECIMAL(9, 2), d DATE); INSERT INTO p VALUES (1.5, '2026-01-02')"
    task = make_task({"gold_sql": "SELECT sum(a), max(d) FROM p", "setup_sql": setup})
    broken = make_task({"gold_sql": "SELECT 1", "setup_sql": "CREATE TABL"})
    async with served(SqlEnvironment(engine="duckdb", workers=1)) as mesh:
        session = (await mesh.create(task)).session_id
        found = await mesh.call(session, "query", {"sql": "SELECT * FROM p"})
        assert json.loads(found.text)["rows"] == [[1.5, "2026-01-02"]]
        assert await reward(mesh, task, "SELECT 1.5, DATE '2026-01-02'") == 1.0
        assert await reward(mesh, task, "SELECT a + 1, d FROM p") == 0.0
        empty = make_task(
            {"gold_sql": "SELECT count(*) FROM p", "setup_sql": "CREATE TABLE p (a INT)"}
        )
        for wrong in (broken, empty):
            with pytest.raises(MeshError) as caught:
                await mesh.create(wrong)
            assert caught.value.metadata["field"] == "setup_sql"


async def test_what_is_no_number_is_equal_to_itself_on_duckdb(duckdb: None) -> None:
    setup = "CREATE TABLE p (a DOUBLE, b TEXT); INSERT INTO p VALUES ('nan', 'x'), (1, 'y')"
    async with served(SqlEnvironment(engine="duckdb", workers=1)) as mesh:
        for query in (
            "SELECT a, b FROM p",
            "SELECT a, b FROM p ORDER BY b",
            "SELECT sum(a) FROM p",
        ):
            for key in ("gold_sql", "gt_sql"):
                task = make_task({key: query, "setup_sql": setup})
                assert await reward(mesh, task, query) == 1.0
                assert (
                    await reward(mesh, task, query.replace("FROM p", "FROM p WHERE a < 2")) == 0.0
                )
        task = make_task({"gold_sql": "SELECT a FROM p WHERE b = 'x'", "setup_sql": setup})
        assert await reward(mesh, task, "SELECT NULL") == 0.0
        assert await reward(mesh, task, "SELECT 'nan'") == 0.0


async def reward(mesh: Served, task: rollout_pb2.Task, text: str) -> float:
    verification = await mesh.verify(of=task, transcript=[new_message("assistant", text)])
    assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    return verification.reward


def make_task(payload: dict[str, Any]) -> rollout_pb2.Task:
    return rollout_pb2.Task(task_id="t", payload_json=dumps(payload))
