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
    """How to reach an API server, and how the pods are made.

    Attributes:
        server, token_file, ca_file: the API server, `https://HOST:PORT`, and the credentials for
            it.
        kubeconfig, context: instead of `server`; all empty: the pod's service account, else the
            usual kubeconfig.
        namespace: where the pods are made; empty: that of the credentials.
        default_image: the image of a request that names none; empty: an image has to be named.
        pull: when the node fetches an image.
        pull_secrets: the secrets with which the node fetches images.
        security: `restricted`: the pod keeps to Kubernetes' restricted standard; `image`: it runs
            as the image says, as root where that says so.
        run_as: the user and the group of a restricted pod.
        scratch: folders that an empty volume of the pod's own is mounted at.
        runtime_class: such as `gvisor`; empty: the cluster's default.
        node_selector: the labels of the nodes.
        network_policies: the cluster's network enforces NetworkPolicies; without it no sandbox can
            be had that has no network.
        claims: the name of a SandboxWarmPool of kubernetes-sigs/agent-sandbox for each image: pods
            are claimed from these and no others are made. What else a pod is, its template says.
        claimed_network: what the pods of these pools can reach, as their templates say.
        unschedulable: whether a sandbox waits for a node with room, until the time to start is
            over, or is refused at once.
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
            raise ValueError("set either server, or kubeconfig and context, not both")
        if self.token_file and not self.server.startswith("https://"):
            raise ValueError("token_file needs server, an https:// address")
        if self.claims:
            usual = KubernetesOptions()
            for name in _OF_A_NEW_POD:
                if getattr(self, name) != getattr(usual, name):
                    raise ValueError(f"{name}: the template of claimed pods sets it; remove it")
            if self.default_image and self.default_image not in self.claims:
                raise ValueError(f"default_image: '{self.default_image}' has no pool in claims")
