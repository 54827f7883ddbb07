"""Audits verifiers: which rewards do cheap and clever policies get? Uses only the contract.

gold.py            a right answer, and the messages built from it (pure)
answers/           variants of a right answer, by its kind (pure, plain data)
policies.py        policies that know nothing or only other answers (pure, plain data)
hostile.py         answers that try to break a verifier (pure, plain data)
sabotage.py        work in a shell that attacks the test that runs it (pure, plain data)
retarget.py        the same task with a different expected answer (pure)
attack.py          one attack that a policy may try
parts.py           which parts of an expected answer are varied (pure)
player.py          plays attacks: session, calls, turns, verdict
memory.py          how much memory a verdict takes
scripted_model.py  replaces judges and simulated users
judgement.py       which verdicts are wrong (pure)
deliberate.py      rewards that an environment gives on purpose, with the reason
audit.py           which attacks on which tasks
report.py          terminal, JSON, HTML (pure)
"""

from gymmesh_audit.attack import KINDS, Attack
from gymmesh_audit.audit import AuditOptions, audit
from gymmesh_audit.deliberate import FILE, Meant, read_deliberate
from gymmesh_audit.gold import Gold, GoldKey, gold_under
from gymmesh_audit.judgement import Report, Weakness
from gymmesh_audit.memory import PeakMemory
from gymmesh_audit.player import MakeArguments, Played, Player
from gymmesh_audit.report import lines, to_html, to_json
from gymmesh_audit.scripted_model import ScriptedModel

__all__ = [
    "FILE",
    "KINDS",
    "Attack",
    "AuditOptions",
    "Gold",
    "GoldKey",
    "MakeArguments",
    "Meant",
    "PeakMemory",
    "Played",
    "Player",
    "Report",
    "ScriptedModel",
    "Weakness",
    "audit",
    "gold_under",
    "lines",
    "read_deliberate",
    "to_html",
    "to_json",
]
