"""Sandboxes as pods of a Kubernetes cluster."""

from gymmesh_sandbox.backends.kubernetes.backend import KubernetesBackend

__all__ = ["KubernetesBackend"]
