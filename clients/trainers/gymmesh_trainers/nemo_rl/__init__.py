"""NeMo RL: a drop-in for an agent of NeMo Gym.

    python -m gymmesh_trainers.nemo_rl --environment shop.py:Shop --head http://HEAD:PORT \\
        --host 127.0.0.1 --port 8090

and in the configuration of `nemo_gym`, an agent without `entrypoint`, which is neither started nor
refused:

    gymmesh_agent: {responses_api_agents: {gymmesh: {host: 127.0.0.1, port: 8090}}}

NeMo Gym 0.7 reaches agents through environment servers alone; the same server is one, too:

    gymmesh: {environment_servers: {gymmesh: {host: 127.0.0.1, port: 8090,
              agent_server: {type: responses_api_agents, name: gymmesh_agent}}}}

Each row of the data names it as `agent_ref`, and is posted to `/run`. The answer is a row of ours,
which has NeMo Gym's keys: `responses_create_params`, `reward`, and `response.output` with
`prompt_token_ids`, `generation_token_ids` and `generation_log_probs`.

The policy is NeMo RL's endpoint, which the head names (`GET /global_config_dict_yaml`), or
`--model URL`. It samples only with the trainer's own `temperature` and `top_p`: NeMo RL puts both
into its rows; for others, `--temperature` and `--top-p` do.

agent.py    the HTTP server
policy.py   NeMo RL's endpoint as a model
rows.py     what NeMo RL can train of a rollout (pure)
command.py  `python -m gymmesh_trainers.nemo_rl`

Interfaces: NeMo RL of August 2026, NeMo Gym 0.4 and 0.7.
"""

from gymmesh_trainers.nemo_rl.agent import NemoAgent, metrics_of
from gymmesh_trainers.nemo_rl.command import main
from gymmesh_trainers.nemo_rl.policy import NemoPolicy, policy_of_head
from gymmesh_trainers.nemo_rl.rows import Forks, NotTrainable, TrainedRow, trained_row

__all__ = [
    "Forks",
    "NemoAgent",
    "NemoPolicy",
    "NotTrainable",
    "TrainedRow",
    "main",
    "metrics_of",
    "policy_of_head",
    "trained_row",
]
