"""Statistics of stored rollouts: what a run achieved, and whether another one did better.

facts.py          what is counted of one row (pure)
totals.py         rollouts added up by task and over all, one at a time (pure)
distributions.py  many numbers in bounded memory (pure)
estimators.py     pass@k and the like, standard errors, exact tests (pure)
resampling.py     bootstrap and sign-flip test (numpy)
health.py         what looks wrong (pure)
report.py         `profile`
task_rows.py      the rows of profiled tasks
bounds.py         what a mean can be when rewards are missing (pure)
compared_run.py   a run as `compare` reads it
comparison.py     `compare`
curve.py          several checkpoints on the same tasks
html.py           pieces of a page (matplotlib)
page.py           a profile as one HTML file
compared.py       comparisons as one HTML file
"""

from gymmesh_data.profile.bounds import RewardBounds
from gymmesh_data.profile.compared import comparison_page
from gymmesh_data.profile.compared_run import read_runs
from gymmesh_data.profile.comparison import Comparison, compare, compare_runs
from gymmesh_data.profile.curve import Curve, CurvePoint, curve_of
from gymmesh_data.profile.estimators import majority_at_k, pass_at_k, pass_hat_k
from gymmesh_data.profile.facts import Fields
from gymmesh_data.profile.health import HealthWarning
from gymmesh_data.profile.page import page_of
from gymmesh_data.profile.report import Figure, Profile, ProfileOptions, profile
from gymmesh_data.profile.resampling import available
from gymmesh_data.profile.task_rows import task_rows
from gymmesh_data.profile.totals import TaskTotals

__all__ = [
    "Comparison",
    "Curve",
    "CurvePoint",
    "Fields",
    "Figure",
    "HealthWarning",
    "Profile",
    "ProfileOptions",
    "RewardBounds",
    "TaskTotals",
    "available",
    "compare",
    "compare_runs",
    "comparison_page",
    "curve_of",
    "majority_at_k",
    "page_of",
    "pass_at_k",
    "pass_hat_k",
    "profile",
    "read_runs",
    "task_rows",
]
