"""Whether a wheel is one to installers: its RECORD."""

import base64
import csv
import hashlib
import zipfile


def fits(archive: zipfile.ZipFile) -> bool:
    """Whether RECORD names each file with its hash and size (the wheel's specification)."""
    [record] = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
    recorded = {name: (digest, size) for name, digest, size in csv.reader(archive.read(record).decode().splitlines())}
    expected = {record: ("", "")}
    for name in set(archive.namelist()) - {record}:
        digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
        expected[name] = (f"sha256={digest}", str(archive.getinfo(name).file_size))
    return recorded == expected
