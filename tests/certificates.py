"""Certificates for a test, made by openssl(1): an authority, a server at 127.0.0.1, clients, and what is wrong."""

import subprocess


class Authority:
    """Signs certificates below its directory."""

    def __init__(self, openssl, directory, name="authority"):
        self._openssl, self.directory = openssl, directory
        directory.mkdir(exist_ok=True)
        self.certificate, self._key = self._files(name)
        self._request(name, "-addext", "basicConstraints=critical,CA:TRUE")

    def sign(self, name, alternative_names):
        """A certificate and its key, as `DNS:…,IP:…`."""
        self._request(
            name,
            *("-CA", str(self.certificate), "-CAkey", str(self._key)),
            *("-addext", f"subjectAltName={alternative_names}", "-addext", "basicConstraints=CA:FALSE"),
        )
        return self._files(name)

    def _files(self, name):
        return self.directory / f"{name}.crt", self.directory / f"{name}.key"

    def _request(self, name, *options):
        certificate, key = self._files(name)
        command = [self._openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
        command += ["-days", "2", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate), *options]
        subprocess.run(command, check=True, capture_output=True)
