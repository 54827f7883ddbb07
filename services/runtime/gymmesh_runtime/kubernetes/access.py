"""The address of the API server and its credentials: from the configuration, from a kubeconfig, or
from a pod's service account.

Kubernetes replaces tokens, certificates and its own authority while services run. So a token file
is read again for each request, and all other files for each new client.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from gymmesh_runtime.config import ConfigError, Secret, read_text, read_token_file

#: Where a pod finds its service account's token, authority and namespace.
POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_USUAL: Final = "~/.kube/config"
_NONE: Final = Secret("")
_T = TypeVar("_T")


class ApiServerOptions(Protocol):
    """The configuration of the API server; empty: not set.

    Attributes:
        server: the server's URL, with `token_file` and `ca_file`.
        kubeconfig, context: a kubeconfig, and the context in it.
        namespace: overrides the namespace of the credentials.
    """

    @property
    def server(self) -> str: ...
    @property
    def token_file(self) -> str: ...
    @property
    def ca_file(self) -> str: ...
    @property
    def kubeconfig(self) -> str: ...
    @property
    def context(self) -> str: ...
    @property
    def namespace(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Access:
    """An API server's URL and credentials. Certificates are PEM. Empty: no client certificate, and
    the system's authorities.
    """

    server: str
    namespace: str
    authority: str = ""
    verify: bool = True
    server_name: str = ""  # in its certificate, where that is not the URL's host
    certificate: str = ""
    key: Secret = _NONE
    token: Secret = _NONE
    token_file: str = ""
    hint: str = ""  # where the credentials come from, for messages

    def bearer(self) -> Secret | None:
        """The current token. Raises ConfigError if the token file contains no token."""
        if not self.token_file:
            return self.token or None
        return read_token_file(Path(self.token_file), "Kubernetes token file")

    def tls(self) -> ssl.SSLContext | bool:
        """The value of aiohttp's argument `ssl`. Raises ConfigError."""
        if not self.server.startswith("https://"):
            return True
        try:
            context = ssl.create_default_context(cadata=self.authority or None)
            if not self.verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if self.certificate:
                # Python takes a key from a file alone; this one can be read by its owner alone.
                with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                    file.write(f"{self.certificate}\n{self.key}\n")
                    file.flush()
                    context.load_cert_chain(file.name)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ConfigError(
                f"the certificates for the Kubernetes API server cannot be used: {error}. "
                f"Check {self.hint}"
            ) from None
        return context


def find_api_server(
    config: ApiServerOptions,
    section: str,
    env: Mapping[str, str] = os.environ,
    pod: Path | None = None,
) -> Access:
    """The API server of a configuration. Raises ConfigError.

    Args:
        section: the configuration key of these options, for messages.
        pod: folder of the pod's service account; None: the usual folder.
    """
    pod = pod or POD
    if config.server:
        access = Access(
            config.server,
            "default",
            read_text(Path(config.ca_file), "Kubernetes CA file") if config.ca_file else "",
            token_file=str(Path(config.token_file).expanduser()) if config.token_file else "",
            hint=f"{section}.token_file and {section}.ca_file",
        )
        access.bearer()
    elif config.kubeconfig or config.context:
        access = _of_kubeconfig(_usual(config, env), config.context, section)
    elif "KUBERNETES_SERVICE_HOST" in env and (pod / "token").exists():
        access = _of_pod(env, pod)
    elif (usual := _usual(config, env)).exists():
        access = _of_kubeconfig(usual, "", section)
    else:
        raise ConfigError(
            f"not running in Kubernetes: this process is not in a pod with a service account, and "
            f"the kubeconfig '{usual}' does not exist. Set {section}.server or "
            f"{section}.kubeconfig"
        )
    return replace(access, namespace=config.namespace or access.namespace)


def check_server(address: str) -> None:
    """Raises ValueError unless it is the URL of a server without a path."""
    try:
        parts = urlsplit(address)
        whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        whole = False
    # The text itself may hold a credential.
    if not whole or parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query:
        raise ValueError("the address of the Kubernetes API server must be https://HOST:PORT")


def _of_pod(env: Mapping[str, str], pod: Path) -> Access:
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    space = pod / "namespace"
    return Access(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        read_text(space, "Kubernetes namespace file").strip() if space.exists() else "default",
        read_text(pod / "ca.crt", "Kubernetes CA file"),
        token_file=str(pod / "token"),
        hint="the pod's service account",
    )


# ---- kubeconfig


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    # Read where it is the one that is used: another may be of a kind that is not known here.
    user: dict[str, object] | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


def _usual(config: ApiServerOptions, env: Mapping[str, str]) -> Path:
    named = config.kubeconfig or env.get("KUBECONFIG", "").split(os.pathsep)[0] or _USUAL
    return Path(named).expanduser()


def _of_kubeconfig(path: Path, wanted: str, section: str) -> Access:
    try:
        text = read_text(path, "Kubernetes kubeconfig")
        known = msgspec.convert(yaml.safe_load(text) or {}, _Kubeconfig)
        name = wanted or known.current_context
        context = _named(known.contexts, "context", name).context
        cluster = _named(known.clusters, "cluster", context.cluster).cluster
        user = _User()
        if context.user:
            said = _named(known.users, "user", context.user).user or {}
            user = _user(said, context.user, section)
        return _joined(path.parent, context, cluster, user, hint=f"the context '{name}' of {path}")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"the kubeconfig '{path}'{where} is not YAML") from None
    except ValueError as error:  # a ValidationError is a ValueError
        raise ConfigError(f"the kubeconfig '{path}' cannot be used: {error}") from None


def _named(those: Sequence[_T], what: str, name: str) -> _T:
    for one in those:
        if getattr(one, "name", None) == name:
            return one
    known = ", ".join(f"'{getattr(one, 'name', '')}'" for one in those) or "none"
    raise ValueError(f"the file has no {what} '{name}'. Its {what}s: {known}")


def _user(said: dict[str, object], name: str, section: str) -> _User:
    try:
        return msgspec.convert(said, _User)
    except msgspec.ValidationError as error:
        if "unknown field" not in str(error):
            raise ValueError(f"the user '{name}': {error}") from None
        strange = sorted(said.keys() - {one.encode_name for one in msgspec.structs.fields(_User)})
        raise ValueError(
            f"gymmesh does not support these keys of the user '{name}': {', '.join(strange)}. Run "
            f"`kubectl proxy`, and set {section}.server to the proxy's http:// address"
        ) from None


def _joined(folder: Path, context: _Context, cluster: _Cluster, user: _User, hint: str) -> Access:
    check_server(cluster.server)
    if cluster.proxy_url:
        raise ValueError(
            "gymmesh does not support the cluster's key 'proxy-url'. Run `kubectl proxy`, and set "
            "'server' to the proxy's http:// address"
        )
    token_file = str(folder / user.token_file) if user.token_file else ""
    if (user.token or token_file) and not cluster.server.startswith("https://"):
        raise ValueError(
            "gymmesh sends the token only over https://, but the cluster's 'server' is not an "
            "https:// address"
        )
    return Access(
        cluster.server,
        context.namespace or "default",
        _pem(folder, cluster.certificate_authority, cluster.certificate_authority_data),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        certificate=_pem(folder, user.client_certificate, user.client_certificate_data),
        key=Secret(_pem(folder, user.client_key, user.client_key_data)),
        token=Secret(user.token),
        token_file=token_file,
        hint=hint,
    )


def _pem(folder: Path, file: str, data: str) -> str:
    """A certificate or key that is in the kubeconfig or in a file of its own."""
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise ValueError("a certificate or key in the kubeconfig is not base64") from None
    return read_text(folder / file, "Kubernetes certificate file") if file else ""
