"""When certificates and authorities are replaced (H02): pure, with the time as an input."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.hosting import certificates
from tenantry.hosting import plane as hosting
from tenantry.hosting.certificates import LIVES, IssuedCertificate, LeafCertificate
from tenantry.hosting.plane import CredentialGenerations, HostedPlane

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
WANTED = {"server": LeafCertificate(ca="ca", user="server"), "user": LeafCertificate(ca="users", user="user")}
PLANE = HostedPlane(uid="a-1", name="acme.web", issuer="https://a-1.example", owner="owner:1")


def issue(
    index: dict[str, IssuedCertificate], now: dt.datetime, generations: dict[str, int] | None = None
) -> tuple[str, ...]:
    """Issue what is due, and return its names."""
    found = certificates.due(index, WANTED, now, generations=generations)
    for name in found.authorities:
        end, generation = now + LIVES.authority, (generations or {}).get(name, 0)
        index[name] = IssuedCertificate(leaf=None, not_before=now, not_after=end, generation=generation)
    for name in found.leaves:
        signer = index[WANTED[name].ca].not_before
        index[name] = IssuedCertificate(leaf=WANTED[name], not_before=now, not_after=now + LIVES.leaf, signer=signer)
    return (*found.authorities, *found.leaves)


@pytest.mark.parametrize(
    ("days", "due"),
    [(0, ()), (243, ()), (244, ("server", "user")), (364, ("server", "user")), (4000, ("ca", "users", *WANTED))],
)
def test_a_certificate_is_due_at_two_thirds_of_its_life(days: int, due: tuple[str, ...]) -> None:
    """H02: also long after its end, as after a sleep; authorities live ten times as long."""
    index: dict[str, IssuedCertificate] = {}
    assert issue(index, NOW) == ("ca", "users", "server", "user")
    assert issue(index, NOW + days * DAY) == due
    assert issue(index, NOW + days * DAY) == ()


@given(st.lists(st.integers(0, 1500), max_size=20))
def test_no_certificate_in_use_is_past_two_thirds_of_its_life(pauses: list[int]) -> None:
    """H02: whenever the place looks, each certificate is valid, and of an authority that is."""
    index: dict[str, IssuedCertificate] = {}
    now = NOW
    for pause in pauses:
        now += pause * DAY
        issue(index, now)
        for name, leaf in WANTED.items():
            assert index[name].not_after - now >= LIVES.leaf / 3
            assert index[leaf.ca].not_after >= index[name].not_after
            assert index[name].signer == index[leaf.ca].not_before
        upcoming = certificates.next_renewal(index, WANTED)
        assert upcoming is not None
        assert upcoming > now


def test_another_generation_replaces_an_authority_and_its_certificates_only() -> None:
    index: dict[str, IssuedCertificate] = {}
    issue(index, NOW, {"users": 0, "ca": 0})
    assert issue(index, NOW + DAY, {"users": 1, "ca": 0}) == ("users", "user")
    assert issue(index, NOW + DAY, {"users": 1, "ca": 0}) == ()
    # Without a wish, as for one certificate of the folder, any generation will do.
    assert issue(index, NOW + DAY) == ()
    # A number that is lost, as with the status of an object, replaces them once more.
    assert issue(index, NOW + 2 * DAY, {"users": 0}) == ("users", "user")


def test_a_certificate_that_is_kept_waits_for_the_end_of_the_overlap() -> None:
    index: dict[str, IssuedCertificate] = {}
    issue(index, NOW, {"ca": 0})
    wished = {"ca": 1}
    found = certificates.due(index, WANTED, NOW + DAY, generations=wished, kept=("server",))
    assert (found.authorities, found.leaves) == (("ca",), ())
    index["ca"] = IssuedCertificate(leaf=None, not_before=NOW + DAY, not_after=NOW + LIVES.authority, generation=1)
    assert certificates.due(index, WANTED, NOW + DAY, generations=wished, kept=("server",)).leaves == ()
    assert issue(index, NOW + 2 * DAY, wished) == ("server",)


def test_records_of_earlier_versions_are_read() -> None:
    """They have no beginning and no signer; nothing is issued again for that."""
    text = b'{"leaf": {"ca": "ca", "user": "server"}, "not_after": "2027-06-01T00:00:00Z"}'
    authority = b'{"leaf": null, "not_after": "2036-05-29T00:00:00Z"}'
    index = {
        name: msgspec.json.decode(each, type=IssuedCertificate) for name, each in (("server", text), ("ca", authority))
    }
    only = {"server": WANTED["server"]}
    assert certificates.due(index, only, NOW + 243 * DAY).leaves == ()
    assert certificates.due(index, only, NOW + 244 * DAY).leaves == ("server",)


def test_the_users_have_an_authority_of_their_own() -> None:
    """H02: so their credentials are replaced without the others; it signs what is requested inside, too."""
    leaves = hosting.leaves(PLANE)
    assert [name for name, leaf in leaves.items() if leaf.ca == hosting.USERS_CA] == [hosting.OWNER]
    manager = msgspec.json.decode(hosting.settings(PLANE, 20000, "/openapi"))["controllers"]
    assert f"--cluster-signing-cert-file=pki/{hosting.USERS_CA}.crt" in manager
    wished = hosting.generations(
        msgspec.structs.replace(PLANE, credentials=CredentialGenerations(users=3, authorities=2))
    )
    assert wished.pop(hosting.USERS_CA) == 3
    assert set(wished) == {"ca", "kubelet-ca", "front-proxy-ca", "service-account"}
    assert set(wished.values()) == {2}
