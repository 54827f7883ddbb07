"""The registry that Kubernetes keeps.

access.py finds the API server and the credentials, client.py sends the requests, and objects.py
reads the answers. entry.py (converts a slice's endpoints to instances) and registry_view.py are
pure. registry.py combines all of them.
"""

from gymmesh_discovery.backends.kubernetes.client import problem_of
from gymmesh_discovery.backends.kubernetes.registry import KubernetesRegistry

__all__ = ["KubernetesRegistry", "problem_of"]
