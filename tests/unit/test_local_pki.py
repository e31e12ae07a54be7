"""Certificates of local clusters."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tenantry.local import pki

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pki") / "pki"
    assert pki.ensure(made, pki.leaves(), NOW)
    return made


def read(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


def subject(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid)]


def test_keys_are_private_and_strong(folder: Path) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
    keys = [load_pem_private_key(file.read_bytes(), None) for file in folder.glob("*.key")]
    curves = [key.curve.name for key in keys if isinstance(key, ec.EllipticCurvePrivateKey)]
    authorities = [key.key_size for key in keys if isinstance(key, rsa.RSAPrivateKey)]
    assert curves == ["secp256r1"] * (len(pki.leaves()) + 1)
    assert authorities == [2048] * 3


@pytest.mark.parametrize(
    ("name", "user", "groups"),
    [
        ("admin", "admin", ["system:masters"]),
        ("operator", "tenantry:operator", ["tenantry:operators"]),
        ("kube-controller-manager", "system:kube-controller-manager", []),
        ("kube-scheduler", "system:kube-scheduler", []),
        ("kwok", "tenantry:kwok", []),
    ],
)
def test_identities(folder: Path, name: str, user: str, groups: list[str]) -> None:
    """Only the administrator is a master (DESIGN, section 2)."""
    certificate = read(folder, name)
    assert subject(certificate, NameOID.COMMON_NAME) == [user]
    assert subject(certificate, NameOID.ORGANIZATION_NAME) == groups
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_each_is_signed_by_its_authority(folder: Path) -> None:
    for name, leaf in pki.leaves().items():
        read(folder, name).verify_directly_issued_by(read(folder, leaf.ca))


def test_etcd_trusts_no_certificate_of_the_cluster(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"[Ii]ssuer"):
        read(folder, "admin").verify_directly_issued_by(read(folder, "etcd-ca"))


def test_nothing_is_made_twice(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert not pki.ensure(folder, pki.leaves(), NOW)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_leaves_are_renewed_at_two_thirds_of_their_life_and_authorities_stay(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    pki.ensure(folder, pki.leaves(), NOW)
    authority, admin = (folder / "ca.crt").read_bytes(), (folder / "admin.crt").read_bytes()
    assert not pki.ensure(folder, pki.leaves(), NOW + dt.timedelta(days=243))
    assert pki.ensure(folder, pki.leaves(), NOW + dt.timedelta(days=244))
    assert (folder / "ca.crt").read_bytes() == authority
    assert (folder / "admin.crt").read_bytes() != admin
    assert read(folder, "admin").not_valid_after_utc > NOW + dt.timedelta(days=600)


def test_a_new_authority_signs_everything_anew(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    pki.ensure(folder, pki.leaves(), NOW)
    (folder / "etcd-ca.key").unlink()
    assert pki.ensure(folder, pki.leaves(), NOW)
    for name, leaf in pki.leaves().items():
        read(folder, name).verify_directly_issued_by(read(folder, leaf.ca))


def test_another_address_renews_only_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    pki.ensure(folder, pki.leaves(), NOW)
    admin = (folder / "admin.crt").read_bytes()
    assert pki.ensure(folder, pki.leaves(("10.89.0.1",)), NOW)
    assert (folder / "admin.crt").read_bytes() == admin
    names = read(folder, "server").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "10.89.0.1" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)
