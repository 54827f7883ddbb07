"""The vectors of the contract: what clients in every language are tested with.

    python -m gymmesh_conformance.vectors FOLDER      copies them there

`vectors` has the codec's, the rows', the tasks' and the errors', `fold_vectors` the streams of
events with the rollout that each folds to, or the rule that it breaks. A README in each says what a
case holds.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

KINDS: Final = ("vectors", "fold_vectors")
_HERE: Final = Path(__file__).parent


def folder(kind: str) -> Path:
    """Where the vectors of a kind are. Raises LookupError for a kind that there is not."""
    if kind not in KINDS:
        raise LookupError(f"there are no vectors called '{kind}'; there are {', '.join(KINDS)}")
    installed = _HERE / "data" / kind
    if installed.is_dir():
        return installed
    return _HERE.parents[2] / "contract" / kind  # in the repository


def copy_to(target: Path) -> int:
    """Copies all vectors into a folder; gives the number of files. Raises OSError."""
    copied = 0
    for kind in KINDS:
        (target / kind).mkdir(parents=True, exist_ok=True)
        for path in sorted(folder(kind).iterdir()):
            if path.suffix in (".json", ".md"):
                shutil.copyfile(path, target / kind / path.name)
                copied += 1
    return copied


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    print(f"{copy_to(Path(sys.argv[1]))} files are in {sys.argv[1]}")
