"""Real certificates, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tarry.client.aio import Tls
from tarry.client.local.cluster import Setting


class Authority:
    """Signs certificates, all good for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("openssl is not installed: no certificate to test with")
        self._openssl = openssl
        self.folder = folder
        self._make("authority", "/CN=authority")

    def _make(self, name: str, subject: str, *more: str) -> None:
        ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        files = ("-keyout", str(self.folder / f"{name}.key"), "-out", str(self.folder / f"{name}.pem"))
        command = [self._openssl, "req", "-x509", *ec, *files, "-subj", subject, *more]
        subprocess.run(command, check=True, capture_output=True)

    def sign(self, name: str, subject: str, *alternatives: str) -> None:
        signed = ("-CA", str(self.folder / "authority.pem"), "-CAkey", str(self.folder / "authority.key"))
        names = ",".join(("IP:127.0.0.1", *alternatives))
        extensions = ("-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE")
        self._make(name, subject, *signed, *extensions)

    def paths(self, name: str) -> Mapping[str, Setting]:
        folder = self.folder
        pair = {"certificate": str(folder / f"{name}.pem"), "key": str(folder / f"{name}.key")}
        return {**pair, "authority": str(folder / "authority.pem")}

    def tls(self, name: str) -> Tls:
        authority, key, certificate = (
            (self.folder / file).read_bytes() for file in ("authority.pem", f"{name}.key", f"{name}.pem")
        )
        return Tls(authorities=authority, certificate=certificate, private_key=key)
