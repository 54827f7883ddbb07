"""Writes dashboards, rules and alerts to where they are used: `python -m deploy.observe`.

With `--check` it changes nothing, names what differs, and ends with 1 where something does.
"""

from __future__ import annotations

import sys

from deploy.observe.generated_files import differing, write


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    if arguments == ["--check"]:
        found = differing()
        for place in found:
            print(f"{place} is not what deploy/observe makes; run python -m deploy.observe")
        return 1 if found else 0
    if arguments:
        print("usage: python -m deploy.observe [--check]")
        return 2
    for place in write():
        print(place)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
