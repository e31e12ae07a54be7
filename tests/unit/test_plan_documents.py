"""Files of all kinds for `tenantry plan`: what an attacker may put into them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry.api.errors import InputError
from tenantry.cli import documents
from tenantry.cli.documents import read_objects

HEAD = "apiVersion: tenantry.dev/v1alpha1\nkind: %s\nmetadata: {name: %s%s}\n"
CLAIM = HEAD % ("SliceClaim", "gpu", ", namespace: acme") + "spec: {count: 2}\n"
PEER = HEAD % ("PeerCluster", "city", "") + "spec: {guest: {quota: {hard: {cpu: 4}}}}\n"
PLANE = HEAD % ("VirtualControlPlane", "dev", ", namespace: acme") + "spec: {version: '1.36'}\n"
DEFAULTS = HEAD % ("TenancyDefaults", "default", "") + "spec: {}\n"


def refusal(folder: Path, text: str) -> str:
    (folder / "t.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_objects([str(folder / "t.yaml")])
    return str(caught.value).replace(str(folder), "")


def test_objects_of_all_kinds_in_their_order(tmp_path: Path) -> None:
    """X10, GitOps: a folder of a repository has every kind."""
    (tmp_path / "t.yaml").write_text(f"{CLAIM}---\n{PEER}---\n{PLANE}---\n{DEFAULTS}")
    found = read_objects([str(tmp_path)])
    assert [f"{each.value.resource.kind} {each.value.key}" for each in found] == [
        "SliceClaim acme/gpu",
        "PeerCluster city",
        "VirtualControlPlane acme/dev",
        "TenancyDefaults default",
    ]
    assert found[0].document["spec"] == {"count": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}", "kind is 'Pod'; it must be one of Tenant, Subnamespace"),
        ("kind: [Tenant]", "kind is ['Tenant']; it must be one of"),
        ('kind: "Ten\\e[2Jant"', r"kind is 'Ten\x1b[2Jant'"),
        (CLAIM.replace("gpu", "../x"), "metadata.name must be a DNS name"),
        (CLAIM.replace("acme", "a/../../b"), "metadata.namespace must be given: a DNS label"),
        (CLAIM.replace(", namespace: acme", ""), "metadata.namespace must be given"),
        (PEER.replace("city}", "city, namespace: acme}"), "metadata.namespace must not be set"),
        (CLAIM + "---\n" + CLAIM, "document 2: metadata.name must not be 'gpu' again"),
        (CLAIM.replace("count", "coutn"), "spec.coutn must not be set: the field is unknown; did you mean count?"),
        (CLAIM.replace("gpu", "!!python/name:os.system x"), "is not YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    """E15: other kinds, paths in names, escapes of terminals."""
    assert said in refusal(tmp_path, text)


def test_merge_keys_that_double_are_refused(tmp_path: Path) -> None:
    """E15: forty lines would be a map of 2^40 keys."""
    levels = (f"a{level}: &a{level} {{<<: [*a{level - 1}, *a{level - 1}]}}" for level in range(1, 40))
    assert "gets more than 100,000 keys from aliases" in refusal(tmp_path, "a0: &a0 {x: 1}\n" + "\n".join(levels))


def test_a_file_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """E15: a device or a pipe could fill the memory."""
    monkeypatch.setattr(documents, "MOST_BYTES", 2**20)
    with pytest.raises(InputError, match="/dev/zero: is longer than 1 MiB; split it"):
        read_objects(["/dev/zero"])
