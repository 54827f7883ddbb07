"""From configuration to services: nothing is lost on the way into another process."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_agent.config import AgentConfig
from gymmesh_discovery.config import DiscoveryConfig
from gymmesh_mesh import MeshConfig
from gymmesh_mesh.compose import ServiceSpec, _decode, make_service, specs_of
from gymmesh_mesh.config import Defaults
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_runtime.config import ConfigError, Secret
from gymmesh_runtime.serving.service import Service

SCHEMAS: dict[str, type[msgspec.Struct]] = {
    "model": ModelConfig,
    "environment": EnvironmentConfig,
    "agent": AgentConfig,
}

# What YAML can say, but for text that UTF-8 can't and numbers that are none.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def configs_of(specs: list[ServiceSpec]) -> dict[str, dict[str, msgspec.Struct]]:
    """The configurations as the workers read them."""
    found: dict[str, dict[str, msgspec.Struct]] = {kind: {} for kind in SCHEMAS}
    for spec in specs:
        if spec.kind != "discovery":
            found[spec.kind][spec.name] = _decode(spec, SCHEMAS[spec.kind])
    return found


@given(
    options=st.dictionaries(texts, plain_values, max_size=3),
    key=texts,
    headers=st.dictionaries(texts, texts, max_size=3),
    names=st.dictionaries(texts, texts, max_size=3),
)
def test_configurations_arrive_as_they_were_sent(
    options: dict[str, object], key: str, headers: dict[str, str], names: dict[str, str]
) -> None:
    model = ModelConfig(
        backend="chat",
        url="http://127.0.0.1:1/v1",
        api_key=Secret(key),
        headers={name: Secret(value) for name, value in headers.items()},
        options=options,
    )
    config = MeshConfig(
        models={"policy": model, "judge": ModelConfig()},
        environments={"e": EnvironmentConfig(options=options, models=names)},
        agents={"a": AgentConfig(options=options, models=names, default_environment="e")},
    )
    found = configs_of(specs_of(config))
    assert found == {
        "model": dict(config.models),
        "environment": dict(config.environments),
        "agent": dict(config.agents),
    }
    back = found["model"]["policy"]
    assert isinstance(back, ModelConfig)
    assert isinstance(back.api_key, Secret)
    assert all(isinstance(value, Secret) for value in back.headers.values())


def test_services_come_in_the_order_in_which_they_open() -> None:
    config = MeshConfig(models={"policy": ModelConfig(), "judge": ModelConfig()})
    specs = specs_of(config, suffix="7")
    assert [(one.kind, one.name) for one in specs] == [
        ("discovery", "registry"),
        ("model", "policy"),
        ("model", "judge"),
        ("environment", "math"),
        ("agent", "tool_loop"),
    ]
    ids = [one.instance_id for one in specs]
    assert len(set(ids)) == len(ids)
    assert all(one.endswith("-7") for one in ids)


def test_an_agent_learns_the_default_environment() -> None:
    config = MeshConfig(
        environments={"maths": EnvironmentConfig()}, defaults=Defaults(environment="maths")
    )
    agent = configs_of(specs_of(config))["agent"]["tool_loop"]
    assert isinstance(agent, AgentConfig)
    assert agent.default_environment == "maths"


@pytest.mark.parametrize("spec", specs_of(MeshConfig()), ids=lambda spec: spec.kind)
def test_each_service_is_made_with_its_name(spec: ServiceSpec) -> None:
    service: Service = make_service(spec)
    assert (service.name, service.instance_id) == (spec.name, spec.instance_id)
    noun = {"environment": "resource"}.get(spec.kind, spec.kind)
    assert service.kind.startswith(f"gymmesh.{noun}.v1.")
    assert service.kind in service.servicers()


def test_a_configuration_does_not_show_its_secrets() -> None:
    key, header = Secret("swordfish"), Secret("sesame")
    model = ModelConfig(backend="chat", url="http://x/v1", api_key=key, headers={"h": header})
    config = MeshConfig(models={"policy": model})
    assert "swordfish" not in repr(config)
    assert "sesame" not in repr(config)


def test_a_number_that_json_lacks_is_refused_by_name() -> None:
    config = MeshConfig(models={"policy": ModelConfig(params={"temperature": float("nan")})})
    with pytest.raises(ConfigError, match=r"^models\.policy\.params\.temperature: "):
        specs_of(config)


def test_an_unpaired_surrogate_arrives() -> None:
    config = MeshConfig(models={"policy": ModelConfig(params={"user": "\ud800"})})
    model = configs_of(specs_of(config))["model"]["policy"]
    assert isinstance(model, ModelConfig)
    assert model.params == {"user": "\ud800"}


@pytest.mark.parametrize(("check", "used"), [("auto", "ttl"), ("grpc", "grpc")])
def test_consul_does_not_check_what_it_has_no_certificate_for(check: str, used: str) -> None:
    consul = {"consul": {"check": check}, "backend": "consul"}
    tls = {"authority": "ca.pem", "certificate": "a.pem", "key": "a.key"}
    for security, expected in (({"tls": tls}, used), (None, check)):
        config = msgspec.convert({"discovery": consul, "security": security}, MeshConfig)
        registry = _decode(specs_of(config)[0], DiscoveryConfig)
        assert registry.consul.check == expected
