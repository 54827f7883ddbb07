"""Makes the pictures of docs/how-to/dashboards.md from a real run: python -m
tests.observe.pictures.

GYMMESH_TEST_PROMETHEUS names the folder with Prometheus, as for `make test-observe`.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Final

from deploy.observe.dashboard import to_json
from deploy.observe.dashboards import ALL
from deploy.observe.picture import View, draw
from tests.observe.conftest import program
from tests.observe.scene import BOTH_AT_WORK, WINDOW, scene, until
from tests.support.docs import ROOT

FOLDER: Final = ROOT / "docs" / "dashboards"
_SOUND_S: Final = 25.0
_FAULTY_S: Final = 10.0


async def main() -> None:
    """Sound work, endpoints that refuse and then fail, an agent killed, tokens that diverge."""
    with tempfile.TemporaryDirectory() as folder:
        async with scene(Path(folder), program("prometheus")) as stage:
            start = time.time()
            await asyncio.sleep(_SOUND_S)
            stage.policy.be("refuses")
            await asyncio.sleep(_FAULTY_S)
            stage.policy.be("fails")
            await asyncio.sleep(_FAULTY_S / 2)
            stage.policy.be("answers")
            await asyncio.sleep(_SOUND_S)
            # In the middle of its work, so that there are sessions to sweep.
            stage.policy.be("hangs")
            await until(lambda: stage.server.now(BOTH_AT_WORK), "work for both agents")
            stage.spare.kill()
            stage.policy.be("answers")
            await asyncio.sleep(_SOUND_S)
            stage.exact.lies = True
            await asyncio.sleep(_FAULTY_S)
            stage.exact.lies = False
            await asyncio.sleep(_FAULTY_S)
            view = View(stage.server, start, time.time(), WINDOW)
            FOLDER.mkdir(exist_ok=True)
            for dashboard in ALL:
                path = FOLDER / f"{dashboard.name}.svg"
                await asyncio.to_thread(draw, json.loads(to_json(dashboard)), view, path)
                print(path.relative_to(ROOT), path.stat().st_size, "bytes")


if __name__ == "__main__":
    asyncio.run(main())
