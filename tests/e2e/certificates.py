"""Certificates of the tests' own, made by the openssl command."""

import ssl
import subprocess

CURVE = "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A certificate authority of the test's own; issues certificates for 127.0.0.1."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "authority.pem"
        openssl("req", "-x509", *CURVE, "-days", "2", "-subj", "/CN=the test's authority",
                "-keyout", folder / "authority.key", "-out", self.path)

    def issue(self, name):
        """A certificate with this common name and its key: their paths."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        request, extensions = self.folder / f"{name}.csr", self.folder / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        openssl("req", "-new", *CURVE, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.path, "-CAkey",
                self.folder / "authority.key", "-CAcreateserial", "-days", "2", "-extfile",
                extensions, "-out", certificate)
        return certificate, key

    def context(self):
        return ssl.create_default_context(cafile=str(self.path))
