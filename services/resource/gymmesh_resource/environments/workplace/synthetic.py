"""A synthetic office, the same for the same seed on every machine.

The tables are as large as those that rows of NeMo Gym's workplace_assistant are written for (500
emails, 300 events, 300 tasks, 200 customers, 500 visits; ids of eight digits from 00000000), so
that the ids in such rows are there. Their contents are not those: the records are made up here.
"""

from __future__ import annotations

import datetime
import random
from functools import lru_cache
from typing import Any

from gymmesh_resource.environments.workplace.board import BOARDS, LISTS
from gymmesh_resource.environments.workplace.customers import PRODUCTS, STATUSES
from gymmesh_resource.environments.workplace.office import NOW, OfficeData, OfficeRecord

_NOW = datetime.datetime.fromisoformat(NOW)
_SOURCES = ("direct", "referral", "search engine", "social media")
# The colleagues that rows of NeMo Gym's workplace_assistant speak of are among them.
_COLLEAGUES = (
    "aisha.chen", "akira.sato", "amir.hassan", "anya.novak", "carlos.rodriguez", "chinedu.okoro",
    "elena.rossi", "fatima.khan", "hanna.lindqvist", "jinsoo.park", "kofi.mensah", "leila.azizi",
    "lena.schmidt", "luis.ortega", "nadia.moreau", "nia.davies", "olga.petrova", "raj.patel",
    "santiago.martinez", "yuki.tanaka",
)  # fmt: skip

# Fifteen times fourteen: every one of 200 customers has a name of their own.
_FIRST_NAMES = (
    "Alex", "Blake", "Casey", "Dakota", "Ellis", "Finley", "Harper", "Jordan", "Kendall", "Logan",
    "Morgan", "Parker", "Quinn", "Riley", "Taylor",
)  # fmt: skip
_LAST_NAMES = (
    "Anderson", "Brown", "Clark", "Davis", "Evans", "Garcia", "Harris", "Jackson", "Lewis",
    "Miller", "Nguyen", "Robinson", "Thomas", "Wilson",
)  # fmt: skip
_COMPANIES = (
    "brightfield", "cobaltworks", "deltaforge", "eastharbor", "fernhill", "granitepeak",
    "northwind", "orchardlane", "quarryside", "silverline",
)  # fmt: skip
_MEETINGS = (
    "Budget review", "Customer call", "Design review", "Hiring panel", "Incident review",
    "Onboarding", "One-on-one", "Planning session", "Product demo", "Quarterly update",
    "Release check", "Risk workshop", "Sprint retrospective", "Team lunch", "Training hour",
)  # fmt: skip
_CHORES = (
    "Add dark mode", "Audit access rights", "Cache search results", "Compress product images",
    "Document the billing service", "Fix checkout rounding", "Improve form errors",
    "Migrate the user table", "Redesign the settings page", "Refactor the export job",
    "Remove unused endpoints", "Shorten the sign-up flow", "Speed up the dashboard",
    "Test the payment webhook", "Translate the help pages", "Update the colour palette",
)  # fmt: skip
_TOPICS = (
    "Agenda for Monday", "Contract draft", "Feedback on the demo", "Invoice question",
    "Lunch on Thursday", "Next steps", "Numbers for October", "Office move", "Password policy",
    "Questions about the roadmap", "Release notes", "Room booking", "Slides for the board",
    "Travel plans", "Workshop summary",
)  # fmt: skip
_NOTES = ("Called.", "Met in person.", "Sent an offer.", "Asked for a demo.", "Wants a discount.")


@lru_cache(maxsize=8)
def synthetic_office(seed: int = 0) -> OfficeData:
    """The office of a seed."""
    chance = random.Random(seed)
    addresses = tuple(f"{name}@atlas.com" for name in _COLLEAGUES)
    names = [f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES]
    return OfficeData(
        emails=_numbered("email_id", [_email(chance, addresses) for _ in range(500)]),
        events=_numbered("event_id", [_event(chance, addresses) for _ in range(300)]),
        tasks=_numbered("task_id", [_task(chance, addresses) for _ in range(300)]),
        customers=_numbered(
            "customer_id",
            [_customer(chance, addresses, name) for name in chance.sample(names, 200)],
        ),
        visits=sorted(
            (_visit(chance, number) for number in range(500)),
            key=lambda visit: str(visit["date_of_visit"]),
        ),
        addresses=addresses,
    )


def _numbered(id_field: str, records: list[OfficeRecord]) -> dict[str, OfficeRecord]:
    return {
        f"{number:08d}": {id_field: f"{number:08d}", **record}
        for number, record in enumerate(records)
    }


def _email(chance: random.Random, addresses: tuple[str, ...]) -> OfficeRecord:
    address = chance.choice(addresses)
    topic, chore = chance.choice(_TOPICS), chance.choice(_CHORES)
    first = address.partition(".")[0].title()
    incoming = chance.random() < 0.7
    greeting, name = ("Hi Sam", first) if incoming else (f"Hi {first}", "Sam")
    return {
        "inbox/outbox": "inbox" if incoming else "outbox",
        "sender/recipient": address,
        "subject": f"{topic} ({chore.lower()})",
        "sent_datetime": _before_now(chance, 60),
        "body": f"{greeting},\n\nthis is about '{chore}'. {topic}?\n\nBest,\n{name}",
    }


def _event(chance: random.Random, addresses: tuple[str, ...]) -> OfficeRecord:
    day = _NOW.date() + datetime.timedelta(days=chance.randrange(-60, 30))
    start = datetime.datetime.combine(day, datetime.time(9 + chance.randrange(8)))
    start += datetime.timedelta(minutes=30 * chance.randrange(2))
    return {
        "event_name": f"{chance.choice(_MEETINGS)}: {chance.choice(_CHORES).lower()}",
        "participant_email": chance.choice(addresses),
        "event_start": start.isoformat(" "),
        "duration": str(30 * (1 + chance.randrange(3))),
    }


def _task(chance: random.Random, addresses: tuple[str, ...]) -> OfficeRecord:
    due = _NOW.date() + datetime.timedelta(days=chance.randrange(-20, 20))
    return {
        "task_name": f"{chance.choice(_CHORES)} for {chance.choice(_COMPANIES)}",
        "assigned_to_email": chance.choice(addresses),
        "list_name": chance.choice(LISTS),
        "due_date": due.isoformat(),
        "board": chance.choice(BOARDS),
    }


def _customer(chance: random.Random, addresses: tuple[str, ...], name: str) -> OfficeRecord:
    contact = _before_now(chance, 60)
    follow_up = datetime.datetime.fromisoformat(contact) + datetime.timedelta(
        days=1 + chance.randrange(30)
    )
    company = chance.choice(_COMPANIES)
    phone = f"{chance.randrange(200, 999)}-555-{chance.randrange(10_000):04d}"
    return {
        "assigned_to_email": chance.choice(addresses),
        "customer_name": name,
        "customer_email": f"{name.lower().replace(' ', '.')}@{company}.com",
        "customer_phone": phone if chance.random() < 0.7 else None,
        "last_contact_date": contact,
        "product_interest": chance.choice(PRODUCTS),
        "status": chance.choice(STATUSES),
        "follow_up_by": follow_up.isoformat(" "),
        "notes": f"{contact[:10]}: {chance.choice(_NOTES)}",
    }


def _visit(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "date_of_visit": _before_now(chance, 60)[:10],
        "visitor_id": f"{number % 400:04d}",
        "page_views": str(1 + chance.randrange(20)),
        "session_duration_seconds": str(1 + chance.randrange(600)),
        "traffic_source": chance.choice(_SOURCES),
        "user_engaged": chance.random() < 0.4,
    }


def _before_now(chance: random.Random, days: int) -> str:
    seconds = chance.randrange(days * 24 * 3600)
    return (_NOW - datetime.timedelta(seconds=seconds)).isoformat(" ")
