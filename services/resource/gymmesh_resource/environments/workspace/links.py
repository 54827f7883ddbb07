"""Links of a workspace that lead to the tests, which would give the work what the tests expect."""

from __future__ import annotations

from typing import Final

from gymmesh_resource.environments.workspace.verdict import WorkspaceRefused
from gymmesh_sandbox_access import SandboxHandle

_LOOK_S: Final = 60.0
_MOST_SHOWN: Final = 20

# `readlink -f` resolves many links with one start. Only where one of them leads to the tests, each
# is resolved alone, since names may hold ends of lines. A version that takes one link at a time
# prints fewer lines than it got.
_SCRIPT: Final = r"""
tests=$(readlink -f "$1") || exit 0
leading=$tests
above=$tests
while [ "$above" != / ]; do
  above=${above%/*}; above=${above:-/}
  case $PWD in "${above%/}"/?*) leading="$leading
$above";; esac
done
export tests leading
many=$(readlink -f / / | wc -l); export many
find . -type l -exec /bin/sh -c '
leads() {
  case "
$leading
" in *"
$1
"*) return;; esac
  case $1 in "$tests"/*) return;; esac
  return 1
}
if [ "$many" -eq 2 ]; then
  readlink -f "$@" | {
    while read -r target; do leads "$target" && exit 1; done
    exit 0
  } && exit 0
fi
for link; do
  if target=$(readlink -f "$link") && leads "$target"; then
    rm -f "$link" && printf "%s\n" "$link"
  fi
done
' sh {} + 2>/dev/null
:
"""


async def remove_links(sandbox: SandboxHandle, tests: str, user: str) -> list[str]:
    """Removes the links of the workspace that lead to the tests, or to a folder above both.

    Nothing of the agent may run. tests: their folder. user: who may remove them. Returns their
    names, the first ones. Raises WorkspaceRefused, and MeshError of the sandbox.
    """
    result = await sandbox.exec(
        ["/bin/sh", "-c", _SCRIPT, "links", tests], user=user, timeout_s=_LOOK_S
    )
    if result.timed_out:
        raise WorkspaceRefused(
            f"the links of the workspace could not all be read within {_LOOK_S:g} s"
        )
    return result.text.splitlines()[:_MOST_SHOWN]
