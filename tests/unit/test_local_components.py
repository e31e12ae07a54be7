"""The command lines of a local cluster's components."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry.api.errors import InputError
from tenantry.local import components
from tenantry.local.components import Component
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import ClusterSpec, Ports

PORTS = Ports(
    etcd=20000, etcd_peer=20001, apiserver=20002, controller_manager=20003, scheduler=20004, kwok=20005, operator=20006
)
PATHS = ClusterPaths(Path("/data/a"))


def build(*, throwaway: bool = False) -> dict[str, Component]:
    spec = ClusterSpec(name="a", ports=PORTS, binaries="/bin/x", throwaway=throwaway)
    return {each.name: each for each in components.components(spec, PATHS, "/usr/bin/python3")}


def test_every_address_is_loopback() -> None:
    for component in build().values():
        for argument in component.command:
            flag, _, value = argument.partition("=")
            if "://" in value and "issuer" not in flag:
                assert "//127.0.0.1:" in value
            if flag in ("--bind-address", "--advertise-address"):
                assert value == "127.0.0.1"


def test_servers_are_told_where_to_listen() -> None:
    for name in (components.APISERVER, components.CONTROLLER_MANAGER, components.SCHEDULER):
        component = build()[name]
        assert "--bind-address=127.0.0.1" in component.command
        assert f"--secure-port={component.port}" in component.command


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        (components.CONTROLLER_MANAGER, "kube-controller-manager"),
        (components.SCHEDULER, "kube-scheduler"),
        (components.KWOK, "kwok"),
        (components.OPERATOR, "operator"),
    ],
)
def test_each_component_has_its_own_identity(name: str, identity: str) -> None:
    """Policies tell the operator and the controllers from an administrator (DESIGN, section 2)."""
    command = build()[name].command
    assert f"--kubeconfig=/data/a/{identity}.kubeconfig" in command
    assert not any("admin" in argument for argument in command)


def test_only_a_throwaway_cluster_skips_fsync() -> None:
    assert "--unsafe-no-fsync" in build(throwaway=True)[components.ETCD].command
    assert "--unsafe-no-fsync" not in build()[components.ETCD].command


def test_etcd_requires_a_certificate_from_every_client() -> None:
    command = build()[components.ETCD].command
    assert "--client-cert-auth" in command
    assert "--peer-client-cert-auth" in command
    assert "--trusted-ca-file=/data/a/pki/etcd-ca.crt" in command


def test_controllers_use_their_service_accounts_and_raised_limits() -> None:
    command = build()[components.CONTROLLER_MANAGER].command
    assert "--use-service-account-credentials" in command
    assert "--kube-api-qps=1000" in command
    assert "--concurrent-namespace-syncs=50" in command


def test_what_needs_the_api_server_starts_after_it() -> None:
    found = build()
    assert list(found) == list(components.NAMES)
    for name in components.NAMES[2:]:
        assert found[name].after == (components.APISERVER,)
    assert found[components.APISERVER].after == ()


def test_an_unknown_component_is_named_with_the_known_ones() -> None:
    with pytest.raises(InputError, match='no component "apiserver"; there are etcd, kube-apiserver'):
        components.check_name("apiserver")
