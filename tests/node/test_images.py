"""Images from files: the Dockerfiles are read for what they say, and archives hold what they should."""

import json
import tarfile
from pathlib import Path

import pytest

from tests.node import images
from tests.node.archive import Image, Layer, write_image
from tests.node.images import COMPONENTS, read_dockerfile


@pytest.mark.parametrize("component", COMPONENTS)
def test_last_stage_of_the_dockerfile_decides(component: str) -> None:
    found = read_dockerfile(component)
    module = {"extender": "extender", "agent": "node_agent"}[component]
    assert found.entrypoint == ("/opt/tangram/bin/python", "-m", module)
    assert found.user == {"extender": "65532:65532", "agent": "0:0"}[component]
    assert found.environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert found.extra == component


def test_dockerfile_of_another_shape_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "manifests" / "docker"
    place.mkdir(parents=True)
    (place / "agent.Dockerfile").write_text("FROM a AS build\nRUN pip install '.[agent]'\n\nFROM b\nENTRYPOINT run\n")
    monkeypatch.setattr(images, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="no line of the known shape for ENTRYPOINT, USER, ENV"):
        read_dockerfile("agent")


def test_archive_names_its_layers_by_their_content(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        content = Layer(tar)
        content.text("opt/app/hello.txt", "hello")
        content.link("bin/app", "/opt/app/hello.txt")
    archive = write_image(Image("test:1", (layer,), ("/bin/app",), user="7:7"), tmp_path / "image.tar")
    with tarfile.open(archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))
        configuration = json.load(tar.extractfile(manifest["Config"]))
        (name,) = manifest["Layers"]
        assert configuration["rootfs"]["diff_ids"] == [f"sha256:{name.partition('/')[0]}"]
        assert configuration["config"]["User"] == "7:7"
        with tarfile.open(fileobj=tar.extractfile(name)) as inner:
            assert inner.getnames() == ["opt", "opt/app", "opt/app/hello.txt", "bin", "bin/app"]


def test_parents_are_open_to_everybody(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "layer.tar", "w") as tar:
        Layer(tar).text("usr/local/lib/module.py", "pass")
    with tarfile.open(tmp_path / "layer.tar") as tar:
        assert {each.mode for each in tar.getmembers() if each.isdir()} == {0o755}
