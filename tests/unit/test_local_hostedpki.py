"""Credentials of hosted control planes on this machine: overlaps, crashes, and what restarts the process (H02)."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from msgspec.structs import replace

from tenantry.api.planecredentials import RotationPhase
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import OVERLAP, CredentialGenerations, HostedPlane
from tenantry.local import hostedpki, pki
from tenantry.local import x509 as writer

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)
PLANE = HostedPlane(uid="a-1", name="acme.web", issuer="https://a-1.example", owner="owner:1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all credentials."""
    folder = tmp_path_factory.mktemp("made") / "pki"
    assert hostedpki.issue(folder, PLANE, NOW) == ()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy, which a test may change."""
    return Path(shutil.copytree(made, tmp_path / "pki"))


def rotated(users: int, authorities: int, phase: RotationPhase = RotationPhase.NONE) -> HostedPlane:
    """Return the control plane with other credentials."""
    return replace(PLANE, credentials=CredentialGenerations(users=users, authorities=authorities, phase=phase))


def signed(folder: Path, name: str, by: str) -> bool:
    """Return whether a certificate is of an authority in a file."""
    leaf = x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())
    for authority in x509.load_pem_x509_certificates((folder / by).read_bytes()):
        try:
            leaf.verify_directly_issued_by(authority)
        except Exception:  # noqa: BLE001, S112 - another one
            continue
        return True
    return False


def files(folder: Path) -> dict[str, bytes]:
    """Return all files."""
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_nothing_changes_until_it_is_due(folder: Path) -> None:
    before = files(folder)
    assert not hostedpki.needs_restart(folder, PLANE, NOW + 200 * DAY)
    hostedpki.issue(folder, PLANE, NOW + 200 * DAY)
    assert files(folder) == before
    due = hostedpki.next_change(folder, PLANE)
    assert due is not None
    assert NOW + 243 * DAY < due < NOW + 244 * DAY


def test_a_renewal_needs_no_restart(folder: Path) -> None:
    """kube-apiserver reads certificates again when their files change; all clients keep their authorities."""
    due = hostedpki.next_change(folder, PLANE)
    assert due is not None
    assert not hostedpki.needs_restart(folder, PLANE, due)
    before = files(folder)
    hostedpki.issue(folder, PLANE, due)
    after = files(folder)
    changed = {name for name in before if after[name] != before[name]} - {"index.json"}
    assert changed == {f"{name}.{kind}" for name in hosting.leaves(PLANE) for kind in ("crt", "key")}
    later = hostedpki.next_change(folder, PLANE)
    assert later is not None
    assert later > due + 240 * DAY


def test_other_users_need_a_restart_and_have_nothing_of_the_former_ones(folder: Path) -> None:
    """A restart ends their watches, too."""
    wanted, before = rotated(1, 0), files(folder)
    assert hostedpki.needs_restart(folder, wanted, NOW + DAY)
    assert hostedpki.issue(folder, wanted, NOW + DAY) == ()
    assert not hostedpki.needs_restart(folder, wanted, NOW + DAY)
    after = files(folder)
    names = {"owner.crt", "owner.key", "users-ca.crt", "users-ca.key", "clients.crt", "index.json"}
    assert {name for name in before if after[name] != before[name]} == names
    assert before["users-ca.crt"] not in after["clients.crt"]
    assert signed(folder, "owner", hosting.CLIENTS)


def test_former_authorities_and_keys_are_trusted_during_their_overlap(folder: Path) -> None:
    """The server answers with the certificate that pods trust, and clients of the former authority are refused."""
    wanted, before = rotated(1, 1), files(folder)
    keys = hostedpki.issue(folder, wanted, NOW + DAY)
    after = files(folder)
    assert [after[name] for name in keys] == [before["service-account.pub"]]
    assert after["service-account.pub"] != before["service-account.pub"]
    assert after["server.crt"] == before["server.crt"]
    assert before["ca.crt"] in after[hosting.TRUSTED]
    assert after["ca.crt"] in after[hosting.TRUSTED]
    assert before["ca.crt"] not in after[hosting.CLIENTS]
    assert all(signed(folder, name, hosting.CLIENTS) for name in (hosting.OPERATOR, hosting.OWNER, "kubelet-client"))
    assert hostedpki.next_change(folder, wanted) == NOW + DAY + OVERLAP
    # The key of the former authority is nowhere.
    assert before["ca.key"] not in after.values()
    assert hostedpki.issue(folder, wanted, NOW + DAY + OVERLAP - HOUR) == keys
    assert files(folder) == after
    end = NOW + DAY + OVERLAP
    assert hostedpki.needs_restart(folder, wanted, end)
    assert hostedpki.issue(folder, wanted, end) == ()
    assert not hostedpki.needs_restart(folder, wanted, end)
    last = files(folder)
    assert last[hosting.TRUSTED] == last["ca.crt"]
    assert signed(folder, "server", "ca.crt")
    assert not [name for name in last if name.startswith("former-")]


def test_two_rotations_in_one_overlap(folder: Path) -> None:
    """The certificate of the server is always of an authority that is trusted."""
    hostedpki.issue(folder, rotated(1, 1), NOW + DAY)
    wanted = rotated(2, 2)
    assert len(hostedpki.issue(folder, wanted, NOW + DAY + HOUR)) == 2
    assert signed(folder, "server", hosting.TRUSTED)
    assert len(hostedpki.issue(folder, wanted, NOW + DAY + OVERLAP)) == 1
    assert signed(folder, "server", hosting.TRUSTED)
    assert hostedpki.issue(folder, wanted, NOW + DAY + OVERLAP + HOUR) == ()
    assert signed(folder, "server", "ca.crt")


@contextmanager
def crash_at(at: int, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Let a write of a file, which is counted from 1, end the process."""
    left, real = at, hostedpki.write_private

    def failing(path: Path, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        real(path, data)

    with monkeypatch.context() as patched:
        for module in (hostedpki, pki, writer):
            patched.setattr(module, "write_private", failing)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("at", [1, 2, 4, 6, 9, 13])
def test_a_crash_at_any_write_is_made_up_for(folder: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the former users is trusted, and pods still trust the server."""
    before, wanted = files(folder), rotated(1, 1)
    with crash_at(at, monkeypatch):
        hostedpki.issue(folder, wanted, NOW + DAY)
    keys = hostedpki.issue(folder, wanted, NOW + DAY + HOUR)
    after = files(folder)
    assert [after[name] for name in keys] == [before["service-account.pub"]]
    assert before["users-ca.crt"] not in after[hosting.CLIENTS]
    assert before["ca.crt"] not in after[hosting.CLIENTS]
    assert after["service-account.pub"] != before["service-account.pub"]
    assert signed(folder, "server", hosting.TRUSTED)
    for name, leaf in hosting.leaves(wanted).items():
        assert name == "server" or signed(folder, name, f"{leaf.ca}.crt")
    assert not hostedpki.needs_restart(folder, wanted, NOW + DAY + HOUR)


def test_an_authority_that_is_due_has_an_overlap_too(folder: Path) -> None:
    later = NOW + 2500 * DAY
    assert hostedpki.needs_restart(folder, PLANE, later)
    before = files(folder)
    hostedpki.issue(folder, PLANE, later)
    assert before["ca.crt"] in (folder / hosting.TRUSTED).read_bytes()
    # After so long, its certificate was due, too.
    assert signed(folder, "server", "ca.crt")


def test_rotations_without_end_keep_few_former_authorities(folder: Path) -> None:
    """VCP-39: the certificates that others trust stay smaller than a Secret may be."""
    keys: tuple[str, ...] = ()
    for number in range(1, 12):
        keys = hostedpki.issue(folder, rotated(0, number), NOW + number * HOUR / 10)
    assert len(keys) == 8
    assert len(list(folder.glob("former-*"))) == 2 * len(keys)
    assert len(x509.load_pem_x509_certificates((folder / hosting.TRUSTED).read_bytes())) == 1 + len(keys)


PREPARING, ISSUING = rotated(0, 0, RotationPhase.PREPARING), rotated(1, 1, RotationPhase.ISSUING)


def test_a_gradual_rotation_trusts_both_until_it_is_completed(folder: Path) -> None:
    """H04: in every phase, clients and tokens of before and of after are known, and pods trust the server."""
    first = files(folder)
    assert hostedpki.needs_restart(folder, PREPARING, NOW + DAY)
    (key,) = hostedpki.issue(folder, PREPARING, NOW + DAY)
    assert not hostedpki.needs_restart(folder, PREPARING, NOW + DAY)
    prepared = files(folder)
    leaves = [f"{name}.crt" for name in hosting.leaves(PLANE)]
    assert [prepared[name] for name in leaves] == [first[name] for name in leaves]
    assert hostedpki.needs_restart(folder, ISSUING, NOW + 2 * DAY)
    keys = hostedpki.issue(folder, ISSUING, NOW + 2 * DAY)
    assert not hostedpki.needs_restart(folder, ISSUING, NOW + 2 * DAY)
    issued = files(folder)
    # What was trusted before it signed.
    assert issued["service-account.pub"] == prepared[key]
    assert [issued[name] for name in keys] == [first["service-account.pub"]]
    for name in ("ca.crt", "users-ca.crt", "front-proxy-ca.crt"):
        assert (issued[name], first[name] == issued[name]) == (prepared[f"next-{name}"], False)
        bundle = hosting.FRONT_PROXY if name.startswith("front") else hosting.CLIENTS
        for trusted in (prepared[bundle], issued[bundle]):
            assert first[name] in trusted
            assert issued[name] in trusted
    assert all(first["ca.crt"] in each[hosting.TRUSTED] for each in (prepared, issued))
    assert all(issued["ca.crt"] in each[hosting.TRUSTED] for each in (prepared, issued))
    assert (first["ca.crt"] + first["users-ca.crt"], issued["server.crt"]) == (
        issued[hosting.FORMER_CLIENTS],
        first["server.crt"],
    )
    assert all(
        signed(folder, name, f"{leaf.ca}.crt") for name, leaf in hosting.leaves(PLANE).items() if name != "server"
    )
    assert not [name for name in issued if name.startswith("next")]
    # Kubelets know the next certificate of the API server before it has it.
    kubelets = [each[hostedpki.NODE_CLIENTS] for each in (first, prepared, issued)]
    assert kubelets == [first["ca.crt"], first["ca.crt"] + issued["ca.crt"], issued["ca.crt"]]
    # It lasts for as long as clients need, and nothing is due meanwhile.
    later = NOW + 2 * DAY + 2 * OVERLAP
    assert not hostedpki.needs_restart(folder, ISSUING, later)
    done = rotated(1, 1)
    assert hostedpki.needs_restart(folder, done, later)
    assert hostedpki.issue(folder, done, later) == ()
    last = files(folder)
    assert last[hosting.CLIENTS] == issued["ca.crt"] + issued["users-ca.crt"]
    assert (last[hosting.TRUSTED], last[hosting.FRONT_PROXY]) == (issued["ca.crt"], issued["front-proxy-ca.crt"])
    assert signed(folder, "server", "ca.crt")
    assert not hostedpki.needs_restart(folder, done, later)


def test_one_that_is_completed_early_refuses_clients_and_keeps_the_server(folder: Path) -> None:
    """H04: pods trust only the server of before for as long as their tokens may live."""
    first = files(folder)
    for plane in (PREPARING, ISSUING, rotated(1, 1)):
        keys = hostedpki.issue(folder, plane, NOW + DAY + HOUR)
    last = files(folder)
    assert first["ca.crt"] not in last[hosting.CLIENTS]
    assert first["users-ca.crt"] not in last[hosting.CLIENTS]
    assert first["ca.crt"] in last[hosting.TRUSTED]
    assert (len(keys), last["server.crt"]) == (1, first["server.crt"])


def test_what_was_prepared_for_nothing_is_deleted(folder: Path) -> None:
    """H04: an owner is removed in the phase Preparing."""
    hostedpki.issue(folder, PREPARING, NOW + DAY)
    wanted = rotated(1, 0)
    assert hostedpki.needs_restart(folder, wanted, NOW + DAY)
    hostedpki.issue(folder, wanted, NOW + DAY)
    assert not [name for name in files(folder) if name.startswith("next")]
    assert files(folder)[hosting.CLIENTS].count(b"BEGIN CERTIFICATE") == 2


@pytest.mark.parametrize("at", [1, 2, 4, 6, 9, 13, 17, 21, 25])
def test_a_crash_at_any_write_of_a_phase_is_made_up_for(folder: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """H04: clients of before are trusted afterwards, and the next ones sign what was prepared."""
    first = files(folder)
    hostedpki.issue(folder, PREPARING, NOW + DAY)
    prepared = files(folder)
    with crash_at(at, monkeypatch):
        hostedpki.issue(folder, ISSUING, NOW + 2 * DAY)
    hostedpki.issue(folder, ISSUING, NOW + 2 * DAY)
    last = files(folder)
    assert last["users-ca.crt"] == prepared["next-users-ca.crt"]
    assert first["users-ca.crt"] in last[hosting.CLIENTS]
    assert first["ca.crt"] in last[hosting.TRUSTED]
    assert signed(folder, hosting.OWNER, "users-ca.crt")
    assert not hostedpki.needs_restart(folder, ISSUING, NOW + 2 * DAY)
