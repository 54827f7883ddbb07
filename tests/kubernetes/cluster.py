"""A real Kubernetes control plane: etcd, an API server, and the controllers of what the tests make.
There are no nodes: a test says itself how a pod is (pods.py, kubelet.py).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.ports import free_port

START_S: Final = 180.0
ADMIN: Final = "token-of-the-tests-admin"
#: Known to the API server, and allowed nothing.
STRANGER: Final = "token-of-somebody-else"
NODE: Final = "node-1"
ZONE: Final = "eu-1a"
# What makes pods, lists their endpoints, counts them and clears up after them. What judges nodes is
# not among them: the tests' node never says that it lives.
CONTROLLERS: Final = (
    "cronjob-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "persistentvolumeclaim-protection-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
)


class ApiError(Exception):
    """An answer of the API server other than success."""

    def __init__(self, code: int, body: str) -> None:
        super().__init__(f"{code}: {body}")
        self.code = code
        self.body = body


class Cluster:
    """Its parts can be killed and started again; etcd keeps what it had."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        taken: set[int] = set()
        self._etcd, self._peer, self.port = [free_port(taken=taken) for _ in range(3)]
        self.server = f"https://127.0.0.1:{self.port}"
        self.ca_file = folder / "certs" / "apiserver.crt"
        self.kubeconfig = folder / "kubeconfig"
        self._write_credentials()

    # ---- processes

    def start(self) -> None:
        """Starts everything, and says that there is a node."""
        self.start_etcd()
        self.start_api()
        self._write_kubeconfig()
        self.start_controllers()
        labels = {"topology.kubernetes.io/zone": ZONE}
        self.call("POST", "/api/v1/nodes", {"metadata": {"name": NODE, "labels": labels}})

    def start_controllers(self) -> None:
        """Starts the controllers."""
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(CONTROLLERS)}",
            f"--root-ca-file={self.ca_file}",
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--leader-elect=false",
            f"--secure-port={free_port()}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._folder / 'controller-certs'}",
        )

    def start_etcd(self) -> None:
        """Starts etcd, with what it had."""
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        self._run(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=error",
            "--unsafe-no-fsync",
        )

    def start_api(self) -> None:
        """Starts the API server, and waits until it is ready."""
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--advertise-address=192.0.2.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.ca_file.parent}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._folder / 'accounts.pem'}",
            f"--service-account-signing-key-file={self._folder / 'accounts.pem'}",
            "--service-cluster-ip-range=10.96.0.0/24",
        )
        deadline = time.monotonic() + START_S
        while not self.ready():
            assert time.monotonic() < deadline, f"no API server: {self.log('kube-apiserver')}"
            assert self._running["kube-apiserver"].poll() is None, self.log("kube-apiserver")
            time.sleep(0.1)

    def ready(self) -> bool:
        """Whether the API server says so."""
        try:
            return bool(self.call("GET", "/readyz") == "ok")
        except (ApiError, OSError):
            return False

    def back_up(self) -> None:
        """Keeps what is there now, for `restore`."""
        self.kill("etcd")
        shutil.copytree(self._folder / "etcd", self._folder / "backup", dirs_exist_ok=True)
        self.start_etcd()
        self.wait_for("/readyz")

    def restore(self) -> None:
        """Goes back to what was there at the backup, as one does after a loss."""
        self.close()
        shutil.rmtree(self._folder / "etcd")
        (self._folder / "backup").rename(self._folder / "etcd")
        self.start_etcd()
        self.start_api()
        self.start_controllers()

    def kill(self, program: str) -> None:
        """Ends one with SIGKILL."""
        process = self._running.pop(program, None)
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(START_S)

    def close(self) -> None:
        """Ends all."""
        for program in list(self._running):
            self.kill(program)

    def log(self, program: str) -> str:
        """The end of what a program said."""
        path = self._folder / f"{program}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def _run(self, program: str, *args: str) -> None:
        with (self._folder / f"{program}.log").open("ab") as log:
            self._running[program] = subprocess.Popen(
                [self._programs / program, *args],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
                start_new_session=True, env=os.environ | {"GOMAXPROCS": "2"},
            )  # fmt: skip

    # ---- credentials

    def _write_credentials(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            # The API server finds the public key in this form of it, and not in PKCS 8.
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        (self._folder / "accounts.pem").write_bytes(private)
        (self._folder / "tokens.csv").write_text(
            f'{ADMIN},admin,1,"system:masters"\n{STRANGER},stranger,2\n'
        )

    def _write_kubeconfig(self) -> None:
        cluster = {"server": self.server, "certificate-authority": str(self.ca_file)}
        document = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": ADMIN}}],
        }
        self.kubeconfig.write_text(json.dumps(document))

    # ---- the API

    def call(self, method: str, path: str, body: Any = None, kind: str = "json") -> Any:
        """One request as the administrator. Raises ApiError and OSError."""
        data = None if body is None else json.dumps(body).encode()
        types = {"json": "application/json", "merge": "application/merge-patch+json"}
        text = self.text(method, path, data, {"Content-Type": types[kind]})
        return json.loads(text) if text.startswith(("{", "[")) else text

    def text(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        token: str = ADMIN,
    ) -> str:
        """One request, and the whole of its answer. Raises ApiError and OSError."""
        sent = {"Authorization": f"Bearer {token}", **headers}
        request = urllib.request.Request(f"{self.server}{path}", data, sent, method=method)
        context = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                text: str = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")) from None
        return text

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "json") -> Any:
        """The same, while the event loop runs."""
        return await asyncio.to_thread(self.call, method, path, body, kind)

    async def apply(self, document: dict[str, Any]) -> Any:
        """Makes an object of a manifest, as the administrator."""
        group = document["apiVersion"]
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        space = document["metadata"].get("namespace")
        kinds = {"EndpointSlice": "endpointslices", "RoleBinding": "rolebindings"}
        plural = kinds.get(document["kind"], f"{document['kind'].lower()}s")
        path = f"{root}/namespaces/{space}/{plural}" if space else f"{root}/{plural}"
        return await self.ask("POST", f"{path}?fieldValidation=Strict", document)

    def wait_for(self, path: str) -> None:
        """Until there is something. Raises ApiError."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.call("GET", path)
            except ApiError as error:
                # 429 while its storage is being set up, 500 while it is away.
                if error.code not in (404, 429, 500) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def make_namespace(self, name: str) -> None:
        """A namespace in which pods can be made."""
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        # Kubernetes gives it what each pod has that says nothing else.
        self.wait_for(f"/api/v1/namespaces/{name}/serviceaccounts/default")
        self.wait_for(f"/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt")

    async def token_of(self, namespace: str, account: str) -> str:
        """A token of a service account, as a pod gets one."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await self.ask("POST", path, request)
        return str(answer["status"]["token"])

    async def forget(self) -> None:
        """Makes etcd forget every version but the newest, as it does each few minutes."""
        head = await asyncio.to_thread(self._etcd_call, "range", {"key": _encoded("/")})
        revision = head["header"]["revision"]
        await asyncio.to_thread(
            self._etcd_call, "compaction", {"revision": revision, "physical": True}
        )

    def _etcd_call(self, what: str, body: Any) -> Any:
        url = f"http://127.0.0.1:{self._etcd}/v3/kv/{what}"
        request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
