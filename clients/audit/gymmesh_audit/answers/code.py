"""Programs: ones that do nothing, or try to pass without the work; other fences. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import Gold

_CHEATS = {
    "an empty program": "pass",
    "exits with 0": "import sys\nsys.exit(0)",
    "exits at once": "import os\nos._exit(0)",
    "prints that it passed": "print('ok')\nprint('All tests passed')",
    "an object equal to everything": (
        "class All(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\n"
        "print(All('x'))"
    ),
    "prints the files that it finds": (
        "import os, sys\nfor top, _, names in os.walk('.'):\n    for name in names:\n"
        "        try: print(open(os.path.join(top, name)).read())\n        except Exception: pass"
    ),
    "prints its frames": (
        "import sys\nframe = sys._getframe()\nwhile frame:\n"
        "    print(frame.f_locals, frame.f_globals)\n    frame = frame.f_back"
    ),
    "raises an error": "raise SystemExit('passed')",
}


def nearly(gold: Gold) -> Iterator[Variant]:
    """Programs that do not do the work."""
    for name, program in _CHEATS.items():
        yield Variant(name, program)
    yield Variant("the program without its last line", "\n".join(gold.answer.splitlines()[:-1]))


def clothes(gold: Gold) -> Iterator[Variant]:
    """The same program in other fences."""
    program = gold.answer
    yield Variant("a plain fence", message=f"```\n{program}\n```")
    yield Variant("a fence of the short name", message=f"```py\n{program}\n```")
    yield Variant("a fence of tildes", message=f"~~~python\n{program}\n~~~")
    yield Variant("a fence that is not closed", message=f"```python\n{program}")
    indented = textwrap.indent(f"```python\n{program}\n```", "  ")
    yield Variant("an indented fence", message=f"1. The program:\n\n{indented}")
    yield Variant("text after the fence", message=f"```python\n{program}\n```\nThat is all.")
    yield Variant("a comment in it", message=f"```python\n# a solution\n{program}\n```")
