"""Where the API server is found, and what is said where it cannot be."""

from __future__ import annotations

import base64
import datetime
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gymmesh_discovery.backends.kubernetes.access import find_access
from gymmesh_discovery.config import KubernetesConfig
from gymmesh_runtime.config import ConfigError
from tests.support.optional import require

require(find_spec("cryptography"), "the package cryptography", "pip install cryptography")

from cryptography import x509  # noqa: E402  # there may be none
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402  # as above
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402  # as above
from cryptography.x509.oid import NameOID  # noqa: E402  # as above

CA = "-----BEGIN CERTIFICATE-----\nca\n-----END CERTIFICATE-----\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def certificate() -> tuple[str, str]:
    """A certificate that signs itself, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, plain, serialization.NoEncryption())
    return made.public_bytes(pem).decode(), private.decode()


def kubeconfig(
    folder: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None
) -> Path:
    """A kubeconfig with two contexts, `lab` being the current one."""
    path = folder / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [
            {"name": "lab", "context": {"cluster": "c", "user": "me", "namespace": "blue"}},
            {"name": "bare", "context": {"cluster": "c"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://k8s:6443", **(cluster or {})}}],
        "users": [
            {"name": "me", "user": {"token": "token-of-mine"} if user is None else user},
            {"name": "cloud", "user": {"exec": {"command": "gcloud"}}},
        ],
        "preferences": {},
    }
    path.write_text(yaml.safe_dump(document))
    return path


def found(path: Path, **more: Any) -> Any:
    return find_access(KubernetesConfig(kubeconfig=str(path), **more), {}, Path("/none"))


def test_a_pod(tmp_path: Path) -> None:
    for name, text in {"token": "tok\n", "ca.crt": CA, "namespace": "blue"}.items():
        (tmp_path / name).write_text(text)
    env = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    access = find_access(KubernetesConfig(), env, tmp_path)
    assert (access.server, access.namespace) == ("https://10.96.0.1:6443", "blue")
    assert (access.bearer(), access.authority) == ("tok", CA)
    (tmp_path / "token").write_text("tok2")
    assert access.bearer() == "tok2"
    other = find_access(KubernetesConfig(namespace="red"), env, tmp_path)
    assert other.namespace == "red"
    six = find_access(KubernetesConfig(), {"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path)
    assert six.server == "https://[fd00::1]:443"


def test_a_server_that_is_named(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("tok")
    config = KubernetesConfig(server="https://k8s:6443", token_file=str(token))
    access = find_access(config, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, tmp_path)
    assert (access.server, access.namespace, access.bearer()) == (
        "https://k8s:6443",
        "default",
        "tok",
    )
    proxy = find_access(KubernetesConfig(server="http://127.0.0.1:8001"), {}, tmp_path)
    assert proxy.bearer() is None
    assert proxy.tls() is True


def test_a_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CA)
    path = kubeconfig(tmp_path, cluster={"certificate-authority": "ca.pem"})
    access = found(path)
    assert (access.server, access.namespace) == ("https://k8s:6443", "blue")
    assert (access.bearer(), access.authority) == ("token-of-mine", CA)
    assert "token-of-mine" not in repr(access)
    bare = found(path, context="bare")
    assert (bare.bearer(), bare.namespace) == (None, "default")
    usual = find_access(KubernetesConfig(), {"KUBECONFIG": f"{path}:/none"}, Path("/none"))
    assert usual == access


def test_a_kubeconfig_with_what_it_needs_inside(tmp_path: Path) -> None:
    made, private = certificate()
    path = kubeconfig(
        tmp_path,
        cluster={"certificate-authority-data": encoded(made), "tls-server-name": "kubernetes"},
        user={"client-certificate-data": encoded(made), "client-key-data": encoded(private)},
    )
    access = found(path)
    assert access.bearer() is None
    assert access.server_name == "kubernetes"
    assert private not in repr(access)
    context = access.tls()
    assert isinstance(context, ssl.SSLContext)
    assert len(context.get_ca_certs()) == 1
    skips = found(kubeconfig(tmp_path, cluster={"insecure-skip-tls-verify": True}))
    assert skips.tls().verify_mode == ssl.CERT_NONE
    assert context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("cluster", "user", "problem"),
    [
        (
            {},
            {"exec": {"command": "aws"}},
            "gymmesh does not support these keys of the user 'me': exec. Run",
        ),
        (
            {},
            {"username": "u", "password": "secret-word"},
            "gymmesh does not support these keys of the user 'me': password, username.",
        ),
        ({}, {"token": 7}, "the user 'me': Expected `str`, got `int` - at `$.token`"),
        ({"server": ""}, {}, "the address of the Kubernetes API server must be https://HOST:PORT"),
        ({"server": "http://k8s:80"}, None, "gymmesh sends the token only over https://"),
        (
            {"proxy-url": "http://p"},
            {},
            "gymmesh does not support the cluster's key 'proxy-url'",
        ),
        (
            {"certificate-authority-data": "?"},
            {},
            "a certificate or key in the kubeconfig is not base64",
        ),
        ({"certificate-authority": "none.pem"}, {}, "none.pem' cannot be read: No such file"),
        ({}, {"tokenFile": "none"}, "the Kubernetes token file"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, problem: str
) -> None:
    path = kubeconfig(tmp_path, cluster=cluster, user=user)
    with pytest.raises(ConfigError) as raised:
        found(path).bearer()
    assert problem in str(raised.value)
    assert "secret-word" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1", "is not YAML"),
        ("clusters: 7", "cannot be used: Expected `array`, got `int` - at `$.clusters`"),
        ("", "the file has no context ''. Its contexts: none"),
    ],
)
def test_a_kubeconfig_that_is_none(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        found(path)
    assert problem in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_context_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no context 'prod'\. Its contexts: 'lab', 'bare'"):
        found(kubeconfig(tmp_path), context="prod")


def test_certificates_that_are_none(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("nothing")
    access = find_access(KubernetesConfig(server="https://k8s:6443", ca_file=str(ca)), {})
    with pytest.raises(ConfigError, match="the certificates for the Kubernetes API server cannot"):
        access.tls()


@pytest.mark.parametrize("text", ["", "two words", "line\nline", "ümlaut"])
def test_a_token_file_without_a_token(tmp_path: Path, text: str) -> None:
    token = tmp_path / "token"
    token.write_text(text)
    config = KubernetesConfig(server="https://k8s:6443", token_file=str(token))
    with pytest.raises(ConfigError, match="contains no token"):
        find_access(config, {})


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"server": "k8s:6443"}, "must be https://HOST:PORT"),
        ({"server": "https://user:pw@k8s"}, "must be https://HOST:PORT"),
        ({"server": "https://k8s:x"}, "must be https://HOST:PORT"),
        ({"server": "http://k8s", "token_file": "t"}, "a token is only sent over https://"),
        ({"token_file": "t"}, "'token_file' and 'ca_file' need the key 'server'"),
        (
            {"server": "https://k8s", "context": "c"},
            "'server' is not allowed together with 'kubeconfig' or 'context'",
        ),
        ({"namespace": "Big"}, "namespace"),
        ({"selector": ""}, "selector"),
        ({"wait_s": 0}, "wait_s"),
    ],
)
def test_a_configuration_that_is_wrong(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(values, KubernetesConfig)
    assert problem in str(raised.value)
    assert "pw" not in str(raised.value)
