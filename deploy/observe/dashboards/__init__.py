"""A module for each dashboard."""

from typing import Final

from deploy.observe.dashboards.environments import ENVIRONMENTS
from deploy.observe.dashboards.mesh import MESH
from deploy.observe.dashboards.models import MODELS
from deploy.observe.dashboards.rollouts import ROLLOUTS
from deploy.observe.dashboards.run import RUN

ALL: Final = (ROLLOUTS, MODELS, ENVIRONMENTS, MESH, RUN)
