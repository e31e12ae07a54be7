"""What the quota of a namespace at a peer is with its share (X03)."""

from __future__ import annotations

from tenantry.api.offloading import DesiredNamespace
from tenantry.controllers.peering.link.shares import with_share
from tenantry.world.shares.amounts import RemoteShare

WANTED = DesiredNamespace(name="shop-0123456789abcdef", tenant="shop", workspace="shop", hard={"cpu": "2"})


def hard(held: dict[str, int], given: dict[str, int]) -> dict[str, str]:
    record = RemoteShare(namespace="shop", peer="berlin", number=1, held=held, given=given)
    return dict(with_share(WANTED, record).hard)


def test_a_namespace_without_a_share_has_what_its_pods_get() -> None:
    assert with_share(WANTED, None) == WANTED
    assert hard({}, {}) == {"cpu": "2"}


def test_a_share_is_beside_what_pods_get() -> None:
    assert hard({"requests.cpu": 1000}, {"requests.cpu": 1000}) == {"requests.cpu": "3"}


def test_a_key_that_is_given_back_has_no_default_until_it_is_confirmed() -> None:
    """The default would be taken for a share that the peer has kept."""
    assert hard({"pods": 5000}, {"pods": 5000}) == {"requests.cpu": "2", "pods": "5"}
    assert hard({"pods": 5000}, {}) == {"requests.cpu": "2", "pods": "0"}
