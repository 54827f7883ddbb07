"""The registry that Kubernetes keeps: access.py finds the API server and the credentials, client.py
asks it, objects.py reads its answers; entry.py (what a slice's endpoints are) and registry_view.py
are pure; registry.py puts them together.
"""

from gymmesh_discovery.backends.kubernetes.client import problem_of
from gymmesh_discovery.backends.kubernetes.registry import KubernetesRegistry

__all__ = ["KubernetesRegistry", "problem_of"]
