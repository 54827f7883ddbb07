"""slime trains each token that was sampled once, with its reward, in slime's own rollout loop."""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from types import ModuleType
from typing import Any, Final

import pytest

from gymmesh_client import UserError
from tests.handoff.slime_areal.router import SLOW, Router, sampled
from tests.handoff.slime_areal.slime_source import require_slime
from tests.handoff.trainers.families import Family

require_slime()

from slime.ray.rollout_validation import validate_server_group_gpu_indices as _  # noqa: F401
