"""slime's own code, from a checkout: it is not on PyPI, and needs SGLang only to start servers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.support.optional import require

FOLDER: Final = os.environ.get("GYMMESH_TEST_SLIME", "")
# What slime's manager imports of SGLang to launch it, which no test does.
_OF_SGLANG: Final = {
    "sglang.srt.constants": (
        "GPU_MEMORY_TYPE_CUDA_GRAPH",
        "GPU_MEMORY_TYPE_KV_CACHE",
        "GPU_MEMORY_TYPE_WEIGHTS",
    ),
    "sglang.srt.server_args": ("ServerArgs",),
    "sglang.srt.utils": ("kill_process_tree",),
}


IS_HERE: Final = bool(FOLDER) and (Path(FOLDER) / "slime" / "rollout").is_dir()


def require_slime() -> None:
    """Skip, or fail in CI, where there is no checkout."""
    require(
        IS_HERE,
        "slime's source",
        "clone THUDM/slime at v0.3.1 or newer, and set GYMMESH_TEST_SLIME to its folder",
    )


def manager_class() -> Any:
    """slime's RolloutManager, without Ray around it."""
    for name, members in _OF_SGLANG.items():
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            package = sys.modules.setdefault(
                ".".join(parts[:depth]), ModuleType(".".join(parts[:depth]))
            )
            package.__path__ = []
        for member in members:
            setattr(sys.modules[name], member, None)
    from slime.ray.rollout import RolloutManager

    return RolloutManager.__ray_metadata__.modified_class
