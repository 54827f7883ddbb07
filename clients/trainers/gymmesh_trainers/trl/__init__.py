"""TRL's two hooks: `rollout_func`, and `environment_factory`, where TRL runs the loop.

rollouts.py     `TrlRollouts`, for `rollout_func`; as rows of a data set: `trl_rows`
environment.py  `TrlEnvironments`, for `environment_factory`
episode.py      one rollout of it: the session, the tool calls, the verdict
tools.py        its tools as methods (pure)
transcript.py   what is judged (pure)
"""

from gymmesh_trainers.trl.environment import TrlEnvironment, TrlEnvironments
from gymmesh_trainers.trl.rollouts import TrlRollouts, plain_prompt, trl_rows

__all__ = ["TrlEnvironment", "TrlEnvironments", "TrlRollouts", "plain_prompt", "trl_rows"]
