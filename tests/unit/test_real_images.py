"""Images that are made of files of this machine."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tenantry.local.real import images
from tenantry.local.real.images import ImageRecipe


def modes(image: Path) -> dict[str, int]:
    """Return the permissions of the files of the first image of a tar file."""
    return {each.name: each.mode for each in members(image) if each.isfile()}


def members(image: Path) -> list[tarfile.TarInfo]:
    """Return what the layer of the first image of a tar file has."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blobs(image)[1]))) as files:
        return list(files)


def blobs(image: Path) -> tuple[dict[str, Any], bytes]:
    """Return the configuration and the compressed layer of the first image of a tar file."""
    with tarfile.open(image) as layout:

        def read(name: str) -> bytes:
            member = layout.extractfile(name)
            assert member is not None
            return member.read()

        def blob(found: dict[str, str]) -> bytes:
            return read(f"blobs/{found['digest'].replace(':', '/')}")

        manifest = json.loads(blob(json.loads(read("index.json"))["manifests"][0]))
        return json.loads(blob(manifest["config"]))["config"], blob(manifest["layers"][0])


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


def test_links_inside_a_folder_stay_links_and_no_other_does(tmp_path: Path) -> None:
    """A link that stayed would lead to another file in the image than on this machine."""
    folder, outside = tmp_path / "root", tmp_path / "outside"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "lib.so.1.2").write_bytes(b"library")
    outside.write_bytes(b"outside")
    for name, target in (("lib.so.1", "lib.so.1.2"), ("out", "../../outside"), ("absolute", str(outside))):
        (folder / "lib" / name).symlink_to(target)
    images.write(ImageRecipe(reference="tenantry.local/web:1", files={"/": folder}), tmp_path / "image.tar")
    found = {each.name: each for each in members(tmp_path / "image.tar")}
    assert found["lib/lib.so.1"].issym()
    assert found["lib/lib.so.1"].linkname == "lib.so.1.2"
    for name in ("lib/out", "lib/absolute"):
        assert found[name].isfile()
        assert found[name].size == len(b"outside")


def test_an_image_has_variables_and_labels(tmp_path: Path) -> None:
    recipe = ImageRecipe(
        reference="tenantry.local/web:1",
        environment={"B": "2", "A": "1=x"},
        labels={"org.opencontainers.image.title": "t"},
    )
    images.write(recipe, tmp_path / "image.tar")
    config, _ = blobs(tmp_path / "image.tar")
    assert config["Env"][1:] == ["A=1=x", "B=2"]
    assert config["Labels"] == {"org.opencontainers.image.title": "t"}
