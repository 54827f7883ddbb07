"""The options of the backend for Kubernetes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from gymmesh_runtime.kubernetes import check_server

# What only a pod that is made for a sandbox can be given.
_OF_A_NEW_POD: Final = (
    "pull", "pull_secrets", "security", "run_as", "scratch", "runtime_class", "node_selector",
    "unschedulable",
)  # fmt: skip


class KubernetesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach an API server, and how the pods are created.

    Attributes:
        server, token_file, ca_file: the API server, `https://HOST:PORT`, and the credentials for
            it.
        kubeconfig, context: a kubeconfig file and its context, as an alternative to `server`. If
            all are empty: the pod's service account; outside a pod, the usual kubeconfig.
        namespace: where the pods are created; empty: the namespace of the credentials.
        default_image: the image for requests that name none; empty: requests must name one.
        pull: when the node fetches an image.
        pull_secrets: the secrets with which the node fetches images.
        security: `restricted`: the pod meets Kubernetes' restricted standard. `image`: the pod runs
            as the image's own user, which may be root.
        run_as: the user and the group of a restricted pod.
        scratch: folders at which each pod has an empty volume of its own.
        runtime_class: such as `gvisor`; empty: the cluster's default.
        node_selector: the labels that a pod's node must have.
        network_policies: whether the cluster's network enforces NetworkPolicies. If it does not, no
            sandbox without network is possible.
        claims: for each image, the name of a SandboxWarmPool of kubernetes-sigs/agent-sandbox. Pods
            are claimed from these pools, and no others are created. Everything else about a pod
            comes from the pool's template.
        claimed_network: what the pods of these pools can reach, as their templates define.
        unschedulable: whether a sandbox waits for a node with room until the start time limit
            (`wait`), or is rejected at once (`refuse`).
    """

    server: str = ""
    token_file: str = ""
    ca_file: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    default_image: str = ""
    pull: Literal["missing", "always", "never"] = "missing"
    pull_secrets: list[str] = []
    security: Literal["restricted", "image"] = "restricted"
    run_as: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 65534
    scratch: list[Annotated[str, msgspec.Meta(pattern="^/[^:]+$")]] = []
    runtime_class: str = ""
    node_selector: dict[str, str] = {}
    network_policies: bool = False
    claims: dict[str, str] = {}
    claimed_network: Literal["open", "none"] = "open"
    unschedulable: Literal["wait", "refuse"] = "wait"

    def __post_init__(self) -> None:
        if self.server:
            check_server(self.server)
        if self.server and (self.kubeconfig or self.context):
            raise ValueError("set either 'server', or 'kubeconfig' and 'context', not both")
        if self.token_file and not self.server.startswith("https://"):
            raise ValueError("'token_file' works only if 'server' is an https:// address")
        if self.claims:
            usual = KubernetesOptions()
            for name in _OF_A_NEW_POD:
                if getattr(self, name) != getattr(usual, name):
                    raise ValueError(
                        f"{name}: remove this key, because the template of claimed "
                        "pods sets the value"
                    )
            if self.default_image and self.default_image not in self.claims:
                raise ValueError(
                    f"default_image: '{self.default_image}' has no warm pool in the option 'claims'"
                )
