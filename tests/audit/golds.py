"""Right answers of the small verifiers, and the forms that they stand in."""

from __future__ import annotations

from typing import Final

BOX: Final = "The answer is \\boxed{{answer}}."
TAG: Final = "<answer>{answer}</answer>"
NUMBERS: Final = ("14640", "108", "-37")
WORDS: Final = ("Lisbon", "Torsund", "Ada Park")
RECORDS: Final = ('{"name": "Ada", "born": 1815}', '{"name": "Tom", "born": 1978}')
QUERIES: Final = (
    "SELECT b, count(*) FROM t GROUP BY b ORDER BY b DESC",
    "SELECT min(a) FROM t",
    "SELECT a FROM t WHERE b = 'x' ORDER BY a",
)
PROGRAMS: Final = ("n = int(input())\nprint(n * 2)", "print(input()[::-1])")
CALLS: Final = (
    (("find", {"city": "Oslo", "limit": 2}), ("book", {"name": "Ada Park", "size": 4})),
    (("find", {"city": "Lima", "limit": 5}), ("book", {"name": "Tom Lee", "size": 2})),
)
BOOKINGS: Final = (
    (("book", {"name": "Ada", "size": 42}),),
    (("book", {"name": "Tom", "size": 19}),),
)
