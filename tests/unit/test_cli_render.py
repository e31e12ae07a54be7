"""What tenants and their trees are made of, from files alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace, ResourceQuota, RoleBinding
from tenantry.api.model import KubernetesObject, ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Adoption, Inheritance, InheritanceMode, Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant, TenantQuota, TenantSpec
from tenantry.views.drift.rendering import render
from tenantry.views.manifests import Manifests

ADA, BOB = (Owner(kind=OwnerKind.USER, name=name) for name in ("ada", "bob"))
ACME = Tenant(
    metadata=ObjectMeta(name="acme"), spec=TenantSpec(owners=(ADA,), quota=TenantQuota(hard={"cpu": 4, "pods": 9}))
)
QUOTA = "tenantry-quota"
REAL = "web-0123456789abcdef"


def child(
    parent: str, name: str, mode: Mode = Mode.WORKSPACE, adopt: str = "", owners: tuple[Owner, ...] = ()
) -> Subnamespace:
    inherits = Inheritance(role_bindings=InheritanceMode.SYNC) if not owners else Inheritance()
    spec = SubnamespaceSpec(
        mode=mode,
        owners=owners,
        inheritance=inherits,
        quota=Quota(hard={"cpu": "500m"}),
        labels={"acme.tenantry.dev/team": name},
        adopt=Adoption(namespace=adopt),
    )
    return Subnamespace(metadata=ObjectMeta(name=name, namespace=parent), spec=spec)


def rendered(*subnamespaces: Subnamespace) -> Sequence[KubernetesObject]:
    return render(Manifests([ACME], list(subnamespaces)))


def namespaces(objects: Sequence[KubernetesObject]) -> dict[str, ObjectMeta]:
    return {each.metadata.name: each.metadata for each in objects if isinstance(each, Namespace)}


def test_a_child_is_rendered_with_all_that_is_inside() -> None:
    """E04: under a name whose digits are left open, after its tenant's own objects."""
    found = rendered(child("acme", "web"))
    inside = [each for each in found if each.metadata.namespace == "web-xxxxxxxxxxxxxxxx"]
    assert [each.resource.kind for each in inside] == [
        *("ResourceQuota", "ResourceQuota", "LimitRange", "NetworkPolicy", "RoleBinding")
    ]
    (quota,) = (each for each in inside if isinstance(each, ResourceQuota) and each.metadata.name == QUOTA)
    assert quota.spec.hard == {"pods": "2", "requests.cpu": "500m"}, "a quarter of the pods that it does not name"
    (binding,) = (each for each in inside if isinstance(each, RoleBinding))
    assert [subject.name for subject in binding.subjects or ()] == ["ada"]
    labels = namespaces(found)["web-xxxxxxxxxxxxxxxx"].labels
    assert labels["acme.tenantry.dev/team"] == "web"
    assert (labels[marks.PARENT], labels["acme.tree.tenantry.dev/depth"]) == ("acme", "1")


def test_the_quota_is_divided_over_the_tree() -> None:
    """E09: each ResourceQuota is the namespace's own share, as the operator would write it."""
    found = rendered(child("acme", "web"), child("acme", "old", adopt="legacy"))
    shares = {
        each.metadata.namespace: each.spec.hard
        for each in found
        if isinstance(each, ResourceQuota) and each.metadata.name == QUOTA
    }
    assert shares["acme"] == {"pods": "6", "requests.cpu": "3"}
    assert shares["legacy"] == {"pods": "2", "requests.cpu": "500m"}


def test_a_child_that_the_quota_does_not_cover_is_refused() -> None:
    """E09: the operator would not create its namespace."""
    tight = [child("acme", f"web-{number}") for number in range(9)]
    with pytest.raises(InputError, match=r"'acme/web-8': .*requests.cpu"):
        rendered(*tight)


def test_a_child_is_called_as_those_in_it_say() -> None:
    """E04: a file that has what is in a child knows what the child is called; a file with an adoption, too."""
    found = namespaces(rendered(child(REAL, "app"), child("acme", "web"), child("acme", "old", adopt="legacy")))
    assert list(found) == ["acme", "legacy", REAL, "app-xxxxxxxxxxxxxxxx"]
    assert found["app-xxxxxxxxxxxxxxxx"].labels["acme.tree.tenantry.dev/depth"] == "2"


def test_a_child_without_its_parent_is_refused() -> None:
    with pytest.raises(InputError, match=r"'elsewhere/app': its parent 'elsewhere' is neither a Tenant nor"):
        rendered(child("elsewhere", "app"))


def test_a_child_that_would_not_be_made_is_refused() -> None:
    """E05: with what its Subnamespace's condition would say."""
    with pytest.raises(InputError, match=r"'acme/shop': spec.owners of a Subtenant must not have 'ada'"):
        rendered(child("acme", "shop", Mode.SUBTENANT, owners=(ADA,)))
    assert "shop-xxxxxxxxxxxxxxxx" in namespaces(rendered(child("acme", "shop", Mode.SUBTENANT, owners=(BOB,))))
