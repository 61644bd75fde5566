"""The bill of materials and the image for containers: whole, reproducible, and as their formats want them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, ROOT, program, run

NUMPY = "numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the bill and the licences read of an environment that packaging/vendor makes."""
    made = tmp_path_factory.mktemp("environment")
    (made / "wheels.sha256").write_text(f"{'5' * 64}  {NUMPY}\n")
    numpy = made / "lib/python3.11/site-packages/numpy-2.4.6.dist-info"
    for folder in (numpy / "licenses", numpy / "sboms", made / "lib/shared/cheetah_forensics-0.1.0.dist-info"):
        folder.mkdir(parents=True)
    about = "Metadata-Version: 2.4\nName: numpy\nVersion: 2.4.6\nSummary: Arrays\nLicense-Expression: BSD-3-Clause\n"
    (numpy / "METADATA").write_text(f"{about}Project-URL: source, https://numpy.example/source\n")
    (numpy / "licenses/LICENSE.txt").write_text("Copyright (c) the developers of arrays")
    purl = "pkg:cargo/inner@1.0.0?download_url=file:///home/builder"
    inner: dict[str, Any] = {"type": "library", "bom-ref": "x", "name": "inner", "version": "1.0.0", "purl": purl}
    inner["licenses"] = [{"expression": "MIT"}]
    (numpy / "sboms/numpy.cdx.json").write_text(json.dumps({"components": [inner]}))
    own = "Metadata-Version: 2.4\nName: cheetah-forensics\nVersion: 0.1.0\nSummary: Drives\nLicense-Expression: Apache-2.0\n"
    (made / "lib/shared/cheetah_forensics-0.1.0.dist-info/METADATA").write_text(f"{own}Requires-Dist: numpy\n")
    return made


@pytest.fixture(scope="module", params=["the binary", "the binary and Python packages"])
def bill(request: pytest.FixtureRequest, stripped: Path, environment: Path) -> dict[str, Any]:
    words = [environment] if "packages" in request.param else []
    return dict(json.loads(run(ROOT / "packaging/sbom", stripped, *words)))


def test_the_bill_of_materials_names_each_crate_of_the_binary_and_no_tool_of_the_tests(
    bill: dict[str, Any], stripped: Path
) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    crates = [component for component in bill["components"] if component["purl"].startswith("pkg:cargo/")]
    names = {component["name"] for component in crates}
    assert {"tokio", "zstd-sys", "cheetah-drive", "axum"} <= names and not names & {"proptest", "insta", "cc"}
    # The licences are made of the same list.
    words = ["--extension"] if "cheetah-python" in names else []
    listed = set(re.findall(r"(?m)^(\S+) \d+\.\S+: ", run(ROOT / "packaging/licences", *words)))
    assert {name for name in names if not name.startswith("cheetah-")} == listed
    for component in crates:
        assert component["licenses"], component
        own = component["name"].startswith("cheetah-")
        assert own or re.fullmatch(r"[0-9a-f]{64}", component["hashes"][0]["content"]), component
    main = bill["metadata"]["component"]
    assert main["hashes"][0]["content"] == hashlib.sha256(stripped.read_bytes()).hexdigest()


def test_the_bill_of_materials_and_the_licences_name_the_python_packages_of_an_environment(
    stripped: Path, environment: Path
) -> None:
    bill = json.loads(run(ROOT / "packaging/sbom", stripped, environment))
    components = {component["bom-ref"]: component for component in bill["components"]}
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    numpy = components[f"pkg:pypi/numpy@2.4.6?file_name={NUMPY}"]
    assert numpy["hashes"] == [{"alg": "SHA-256", "content": "5" * 64}]
    assert numpy["licenses"] == [{"expression": "BSD-3-Clause"}] and numpy["scope"] == "optional"
    assert [(part["name"], part["purl"]) for part in numpy["components"]] == [("inner", "pkg:cargo/inner@1.0.0")]
    [own] = [name for name in components if name.startswith("pkg:pypi/cheetah-forensics@")]
    assert own in needs[bill["metadata"]["component"]["bom-ref"]]
    assert numpy["bom-ref"] in needs[own] and any(name.startswith("pkg:cargo/cheetah-python@") for name in needs[own])

    licences = run(ROOT / "packaging/licences", environment)
    assert "\nnumpy 2.4.6: BSD-3-Clause; https://numpy.example/source\n  with inner 1.0.0: MIT\n" in licences
    assert "Copyright (c) the developers of arrays" in licences and re.search(r"(?m)^pyo3 \d", licences)


def test_each_reference_in_the_bill_of_materials_leads_to_a_component(bill: dict[str, Any]) -> None:
    known = [component["bom-ref"] for component in bill["components"]] + [bill["metadata"]["component"]["bom-ref"]]
    assert len(set(known)) == len(known)
    assert sorted(entry["ref"] for entry in bill["dependencies"]) == sorted(known)
    assert {need for entry in bill["dependencies"] for need in entry["dependsOn"]} <= set(known)


def test_the_bill_of_materials_is_valid_cyclonedx(bill: dict[str, Any]) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json", reason="needs cyclonedx-python-lib[json-validation]")
    schema = pytest.importorskip("cyclonedx.schema")
    wrong = validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(json.dumps(bill))
    assert wrong is None, wrong


class Image:
    """An image of the Open Container Initiative in an archive, each digest of which is checked."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]
        assert json.loads(self.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
        self.read: set[str] = set()

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        """The content of a descriptor, which must be that of its digest."""
        kind, _, digest = descriptor["digest"].partition(":")
        name = f"blobs/{kind}/{digest}"
        content = self.files[name]
        assert kind == "sha256" and hashlib.sha256(content).hexdigest() == digest and len(content) == descriptor["size"]
        self.read.add(name)
        return content


def test_the_image_has_the_binary_and_each_digest_in_it_is_right(stripped: Path, tmp_path: Path) -> None:
    env = os.environ | {"OUT": str(tmp_path), "LEVEL": "1"}
    path = Path(run(ROOT / "packaging/oci", stripped, env=env).strip())
    first = path.read_bytes()
    run(ROOT / "packaging/oci", stripped, env=env)
    assert path.read_bytes() == first, "two runs give the same bytes"

    image = Image(path)
    [described] = json.loads(image.files["index.json"])["manifests"]
    manifest = json.loads(image.blob(described))
    config = json.loads(image.blob(manifest["config"]))
    [layer] = manifest["layers"]
    content = gzip.decompress(image.blob(layer))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert {name for name in image.files if name.startswith("blobs/")} == image.read, "no blob is left over"

    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        binary = tar.extractfile("usr/bin/cheetah")
        assert binary and binary.read() == stripped.read_bytes()
        assert tar.getmember("usr/bin/cheetah").mode == 0o755 and tar.getmember("tmp").mode == 0o1777
        executables = [member.name for member in tar if member.isfile() and member.mode & 0o111]
        assert executables == ["usr/bin/cheetah"]
        home = tar.getmember(config["config"]["WorkingDir"].lstrip("/"))
        user, _, group = config["config"]["User"].partition(":")
        assert (str(home.uid), str(home.gid)) == (user, group) and user != "0"
        tar.extractall(tmp_path / "root", filter="tar")
    assert run(tmp_path / "root" / config["config"]["Entrypoint"][0].lstrip("/"), "--version").startswith("cheetah ")


def test_the_program_of_the_image_runs_with_nothing_else_around_it(stripped: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for chroot")
    if not re.search("statically linked|static-pie", run(program("file"), "-b", stripped)):
        pytest.skip("needs a static binary")
    (tmp_path / "usr/bin").mkdir(parents=True)
    shutil.copy(stripped, tmp_path / "usr/bin/cheetah")
    assert run(program("chroot"), tmp_path, "/usr/bin/cheetah", "--version").startswith("cheetah ")


def test_skopeo_accepts_the_image(stripped: Path, tmp_path: Path) -> None:
    skopeo = program("skopeo")
    path = run(ROOT / "packaging/oci", stripped, env=os.environ | {"OUT": str(tmp_path), "LEVEL": "1"}).strip()
    found = json.loads(run(skopeo, "inspect", "--config", f"oci-archive:{path}", timeout_s=PATIENCE_S))
    assert found["config"]["Entrypoint"] == ["/usr/bin/cheetah"]
