"""The image's bill of materials: what three tools say of its parts, in one document."""

from materials import crates_of, debian_packages, together

STATUS = """\
Package: base-files
Status: install ok installed
Architecture: amd64
Version: 12.4+deb12u13
Description: Debian base system miscellaneous files
 This package contains: the basic filesystem hierarchy.

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9

Package: apt
Status: deinstall ok config-files
Architecture: amd64
Version: 2.6.1
"""
MATURIN = {
    "components": [
        {"bom-ref": "registry#serde@1.0", "type": "library", "name": "serde", "version": "1.0",
         "purl": "pkg:cargo/serde@1.0", "licenses": [{"expression": "MIT"}], "scope": "required"},
        {"bom-ref": "path#devherd", "type": "library", "name": "devherd", "version": "0.1.0"},
    ]
}  # fmt: skip
SERDE = {
    "bom-ref": "pkg:cargo/serde@1.0",
    "type": "library",
    "name": "serde",
    "version": "1.0",
    "purl": "pkg:cargo/serde@1.0",
    "licenses": [{"expression": "MIT"}],
}


def test_debian_packages_are_those_that_are_installed():
    """A package whose settings alone are left is not there."""
    base_files, libc = debian_packages(STATUS)
    assert (base_files["name"], libc["name"]) == ("base-files", "libc6")
    assert base_files["purl"] == "pkg:deb/debian/base-files@12.4%2Bdeb12u13?arch=amd64"
    assert libc["version"] == "2.36-9"


def test_crates_are_those_of_a_registry_with_their_licences():
    """Devherd's own is named as the Python package that it is part of."""
    assert crates_of(MATURIN) == [SERDE]


def test_each_component_is_named_once():
    """In the order of their references, so that two bills can be compared; what else the document says is kept."""
    python = {"bom-ref": "a", "name": "rich"}
    document = {"specVersion": "1.6", "components": [python], "dependencies": [{"ref": "a"}]}
    bill = together(document, [SERDE], [SERDE, {"bom-ref": "b", "name": "libc6"}])
    assert [component["bom-ref"] for component in bill["components"]] == ["a", "b", "pkg:cargo/serde@1.0"]
    assert (bill["specVersion"], bill["dependencies"]) == ("1.6", [{"ref": "a"}])
