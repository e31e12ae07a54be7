"""Images that are made of files of this machine."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from tenantry.local.real import images
from tenantry.local.real.images import ImageRecipe


def modes(image: Path) -> dict[str, int]:
    """Return the permissions of the files of the first image of a tar file."""
    with tarfile.open(image) as layout:

        def read(name: str) -> bytes:
            member = layout.extractfile(name)
            assert member is not None
            return member.read()

        def blob(found: dict[str, str]) -> bytes:
            return read(f"blobs/{found['digest'].replace(':', '/')}")

        manifest = json.loads(blob(json.loads(read("index.json"))["manifests"][0]))
        layer = gzip.decompress(blob(manifest["layers"][0]))
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        return {each.name: each.mode for each in files if each.isfile()}


@pytest.mark.parametrize(
    ("given", "kept"), [(0o600, 0o644), (0o700, 0o755), (0o4711, 0o4755), (0o4644, 0o644), (0o2755, 0o755)]
)
def test_programs_keep_that_they_run_as_their_owner(tmp_path: Path, given: int, kept: int) -> None:
    """All users can read files and run programs; only the set-user-ID bit of programs is of the author's choice."""
    source = tmp_path / "program"
    source.write_bytes(b"x")
    source.chmod(given)
    images.write(ImageRecipe(reference="tenantry.local/web:1", files={"/program": source}), tmp_path / "image.tar")
    assert modes(tmp_path / "image.tar")["program"] == kept


def test_images_with_the_same_files_share_them(tmp_path: Path) -> None:
    """Kubernetes' tests use one file system under many names."""
    source = tmp_path / "program"
    source.write_bytes(b"x")
    recipes = [
        ImageRecipe(reference=f"tenantry.local/{name}:1", files={place: source}, entrypoint=(name,))
        for name, place in (("a", "/p"), ("b", "/p"), ("c", "/q"))
    ]
    images.write_all(recipes, tmp_path / "images.tar")
    with tarfile.open(tmp_path / "images.tar") as layout:
        blobs = [each.name for each in layout if each.name.startswith("blobs/")]
        member = layout.extractfile("index.json")
        assert member is not None
        index = json.loads(member.read())
    names = [each["annotations"]["io.containerd.image.name"] for each in index["manifests"]]
    assert names == [each.reference for each in recipes]
    # A configuration and a manifest of each, and two layers.
    assert len(blobs) == len(set(blobs)) == 2 * len(recipes) + 2
