"""What takes minutes is collected only where it is asked for."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("GYMMESH_TEST_SLOW") else ["test_slow_calls.py"]
