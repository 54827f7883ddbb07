"""The office: verdicts by state, tools, recorded rollouts, memory of sessions, CSV data."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Rollout, Session, Task, TaskInvalid
from gymmesh_resource.environments.workplace import WorkplaceEnvironment
from gymmesh_resource.environments.workplace.office import Office, OfficeData, differing_tables
from gymmesh_resource.environments.workplace.synthetic import synthetic_office
from gymmesh_resource.registry import example_tasks
from gymmesh_responses import dumps, items_from_json
from tests.unit.resource.served import served

CASES: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("verdicts.yaml").read_text("utf-8"), yaml.CSafeLoader
)
SAME = synthetic_office(0).events["00000003"]["duration"]


@pytest.fixture(scope="module", name="office")
def _office() -> WorkplaceEnvironment:
    return WorkplaceEnvironment()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_case(office: WorkplaceEnvironment, case: dict[str, Any]) -> None:
    task = make_task(as_truth(case["expected"]))
    office.check_task(task)
    assert verdict_on(office, task, as_items(case["made"])) == case["reward"]


def test_the_table_is_large() -> None:
    assert len(CASES) >= 40
    assert {case["reward"] for case in CASES} == {0, 1}


@pytest.mark.golden
def test_the_tools_are_those_of_the_rows(golden_dir: Path) -> None:
    row = json.loads((golden_dir / "workplace_assistant.example.jsonl").read_text().split("\n")[0])
    theirs = {tool["name"]: tool["parameters"] for tool in row["responses_create_params"]["tools"]}
    ours = {
        name: tool.schema
        for name, tool in WorkplaceEnvironment()._tools.items()  # as offered
    }
    assert ours.keys() == theirs.keys()
    for name, schema in theirs.items():
        assert ours[name]["properties"].keys() == schema["properties"].keys(), name
        assert set(ours[name].get("required", ())) <= set(schema["required"]), name


@pytest.mark.golden
def test_recorded_tasks_run_unchanged(golden_dir: Path, office: WorkplaceEnvironment) -> None:
    rows = read(golden_dir / "workplace_assistant.example.jsonl")
    assert rows
    for row in rows:
        task = make_task(row["ground_truth"])
        office.check_task(task)
        calls = [[call["name"], call["arguments"]] for call in row["ground_truth"]]
        assert verdict_on(office, task, as_items(calls)) == 1.0
        assert verdict_on(office, task, []) == 0.0
        assert verdict_on(office, task, as_items(calls[1:])) == 0.0


@pytest.mark.golden
def test_recorded_rollouts_as_far_as_data_have_no_part(
    golden_dir: Path, office: WorkplaceEnvironment
) -> None:
    """The rollouts' own rows are not in the folder, nor is the data: what remains is that each
    call is possible here, and answered alike where the answer does not depend on the records.
    """
    answers: dict[str, Any] = {}
    for rollout in read(golden_dir / "workplace_assistant.example_rollouts.jsonl"):
        items = list(items_from_json(dumps(rollout["response"]["output"])))
        calls = Rollout(make_task([]), items, rollout_pb2.STOP_REASON_MODEL_FINISHED).tool_calls
        session = Session("s", make_task([]), 0, Office(office.office_data))
        for call in calls:
            tool = office._tools[call.name]  # as the service calls it
            answers[call.name] = (
                json.loads(call.output or "")["output"],
                tool.call(session=session, **(call.arguments or {})),
            )
        truth = [{"name": c.name, "arguments": c.arguments} for c in calls]
        assert verdict_on(office, make_task(truth), items) == 1.0
    for name in (
        "analytics_create_plot",
        "company_directory_find_email_address",
        "customer_relationship_manager_add_customer",
        "customer_relationship_manager_delete_customer",
        "email_delete_email",
    ):
        theirs, ours = answers[name]
        assert theirs == ours
    theirs, ours = answers["email_search_emails"]
    assert theirs.keys() == ours.keys()
    assert theirs["pagination"].keys() == ours["pagination"].keys()
    assert theirs["emails"][0].keys() == ours["emails"][0].keys()


@pytest.mark.parametrize(
    ("truth", "field"),
    [
        (None, "ground_truth"),
        ({}, "ground_truth"),
        ([1], "ground_truth[0]"),
        ([{"name": "email_delete_email", "arguments": 5}], "ground_truth[0].arguments"),
        ([{"name": "nothing", "arguments": {}}], "ground_truth[0]"),
        ([{"name": "email_delete_email", "arguments": "{"}], "ground_truth[0]"),
        ([{"name": "email_delete_email", "arguments": '{"email_id": "7"}'}], "ground_truth[0]"),
        (
            [
                {
                    "name": "calendar_update_event",
                    "arguments": {
                        "event_id": "00000003",
                        "field": "duration",
                        "new_value": SAME,
                    },
                }
            ],
            "ground_truth",
        ),
    ],
)
def test_a_row_that_cannot_be_judged_is_named(
    office: WorkplaceEnvironment, truth: Any, field: str
) -> None:
    task = make_task(truth) if truth is not None else Task(rollout_pb2.Task(task_id="t"))
    with pytest.raises(TaskInvalid) as caught:
        office.check_task(task)
    assert caught.value.field == field


def test_the_synthetic_office_is_the_same_each_time() -> None:
    synthetic_office.cache_clear()
    first = synthetic_office(0)
    synthetic_office.cache_clear()
    again, other = synthetic_office(0), synthetic_office(1)
    assert first == again
    assert first != other
    sizes = [len(first.emails), len(first.events), len(first.tasks), len(first.customers)]
    assert sizes == [500, 300, 300, 200]
    assert len({record["customer_name"] for record in first.customers.values()}) == 200


def test_sessions_leave_the_shared_records_alone(office: WorkplaceEnvironment) -> None:
    before = json.dumps(office.office_data.events)
    ours, theirs = Office(office.office_data), Office(office.office_data)
    ours.events.update("00000003", "event_name", "A")
    ours.events.delete("00000004")
    assert differing_tables(ours, theirs) == ["calendar"]
    assert json.dumps(office.office_data.events) == before
    assert len(list(ours.events)) == len(list(theirs.events)) - 1


def test_offices_over_other_data_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same data"):
        differing_tables(Office(synthetic_office(0)), Office(synthetic_office(1)))


async def test_tools_over_the_wire(office: WorkplaceEnvironment) -> None:
    async with served(WorkplaceEnvironment()) as mesh:
        session = (await mesh.create(make_task([]).message)).session_id

        async def call(tool: str, /, **arguments: Any) -> Any:
            return await mesh.call(session, tool, arguments)

        last = await call("email_search_emails", query="", page_size=2, page=999)
        found = json.loads(last.text)
        assert found["pagination"] == {
            "total_emails": 500,
            "page": 250,
            "page_size": 2,
            "total_pages": 250,
        }
        for name, arguments, hint in (
            ("email_delete_email", {"email_id": "9"}, b"email_search_emails"),
            ("email_search_emails", {"page_size": 0}, b"page_size"),
            ("email_search_emails", {"date_min": "soon"}, b"2023-12-01"),
            ("calendar_delete_event", {"event_id": "9"}, b"eight digits"),
            ("project_management_search_tasks", {}, b"at least one"),
            ("project_management_search_tasks", {"assigned_to_email": "raj"}, b"directory"),
            ("customer_relationship_manager_search_customers", {}, b"at least one"),
            ("company_directory_find_email_address", {"name": " "}, b"empty"),
            ("analytics_get_visitor_information_by_id", {"visitor_id": "x"}, b"no visitor"),
        ):
            refused = await call(name, **arguments)
            assert refused.outcome == rollout_pb2.TOOL_OUTCOME_TOOL_ERROR, name
            assert hint in refused.text, refused.text
        visits = json.loads((await call("analytics_total_visits_count")).text)
        assert sum(visits.values()) == 500
        by_source = [
            json.loads((await call("analytics_traffic_source_count", traffic_source=source)).text)
            for source in ("direct", "referral", "search engine", "social media")
        ]
        assert sum(sum(part.values()) for part in by_source) == 500
        assert list(visits) == list(by_source[0])


async def test_the_example_tasks_are_won_by_their_own_calls() -> None:
    environment = WorkplaceEnvironment()
    tasks = example_tasks(environment, "e")
    assert len(tasks) >= 5
    async with served(environment) as mesh:
        for task in tasks:
            session = await mesh.create(task)
            truth = Task(task).payload["ground_truth"]
            items = as_items([[call["name"], call["arguments"]] for call in truth])
            won = await mesh.verify(session.session_id, task, items)
            assert won.reward == 1.0
            idle = await mesh.verify(session.session_id, task, [])
            assert idle.reward == float(not truth)


def test_an_office_from_files(tmp_path: Path) -> None:
    data = synthetic_office(0)
    write_office(tmp_path, data)
    read_back = WorkplaceEnvironment(data=str(tmp_path)).office_data
    assert read_back.emails == data.emails
    assert read_back.customers == data.customers
    assert sorted(read_back.addresses) == sorted(data.addresses)
    (tmp_path / "emails.csv").write_text("email_id\n1\n")
    with pytest.raises(ValueError, match="no column"):
        WorkplaceEnvironment(data=str(tmp_path))
    (tmp_path / "emails.csv").unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        WorkplaceEnvironment(data=str(tmp_path))


def write_office(folder: Path, data: OfficeData) -> None:
    tables: dict[str, Any] = {
        "emails": data.emails.values(),
        "calendar_events": data.events.values(),
        "project_tasks": data.tasks.values(),
        "customer_relationship_manager_data": data.customers.values(),
        "analytics_data": data.visits,
    }
    for name, records in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = list(records)
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def verdict_on(office: WorkplaceEnvironment, task: Task, items: list[responses_pb2.Item]) -> float:
    session = Session("s", task, 0, Office(office.office_data))
    return office.verify(
        session, Rollout(task, items, rollout_pb2.STOP_REASON_MODEL_FINISHED)
    ).reward


def make_task(truth: Any) -> Task:
    return Task(rollout_pb2.Task(task_id="t", payload_json=dumps({"ground_truth": truth})))


def as_truth(calls: list[list[Any]]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": arguments} for name, arguments in calls]


def as_items(calls: list[list[Any]]) -> list[responses_pb2.Item]:
    return list(
        items_from_json(
            dumps(
                [
                    {
                        "type": "function_call",
                        "name": name,
                        "arguments": written(arguments),
                        "call_id": str(index),
                    }
                    for index, (name, arguments) in enumerate(calls)
                ]
            )
        )
    )


def written(arguments: Any) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return text.replace('"SAME"', json.dumps(SAME))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
