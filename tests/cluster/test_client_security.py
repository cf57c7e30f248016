"""Clients with bearer tokens and certificates, against real nodes that ask for them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tarry.client.aio import Tls, connect
from tarry.client.cli.main import app
from tarry.client.errors import NotPermitted, TarryError
from tarry.client.local.cluster import Setting
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    shop = {"produce": ["orders.*"], "consume": ["orders.*"]}
    tokens: dict[str, Setting] = {"shop": shop, "root": {"operate": True}}
    settings: dict[str, Setting] = {"tokens": tokens, "peer_token": "between-nodes"}
    with Disposable(3, tmp_path_factory.mktemp("tokens"), settings, token="root") as cluster:
        cluster.start()
        cluster.wait_until_serving()
        yield cluster.addresses


async def test_a_token_opens_its_topics_and_no_others(guarded: str) -> None:
    async with connect(guarded, token="shop") as client:
        producer = client.producer()
        await producer.schedule("orders.new", b"x", delay_ms=0)
        async with client.consumer("orders.new", "g") as consumer:
            assert (await anext(consumer)).body == b"x"
        with pytest.raises(NotPermitted):
            await producer.schedule("salaries", b"x", delay_ms=0)
        with pytest.raises(NotPermitted):
            await client.consumer("salaries", "g").start()
        with pytest.raises(NotPermitted):
            await client.operator().transfer()


@pytest.mark.parametrize("token", [None, "guess"])
async def test_without_a_known_token_nothing_opens_and_nothing_is_retried(
    guarded: str, token: str | None
) -> None:
    async with connect(guarded, token=token) as client:
        with pytest.raises(NotPermitted) as refused:
            await client.producer().schedule("orders.new", b"x", delay_ms=0)
    assert refused.value.reason == "UNAUTHENTICATED"


def test_the_command_line_takes_the_token(guarded: str) -> None:
    command = ["schedule", "orders.cli", "x", "--delay", "1s", "-s", guarded]
    assert CliRunner().invoke(app, [*command, "--token", "shop"]).exit_code == 0
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert "UNAUTHENTICATED" in refused.stderr


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: no certificate to test with")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "node.pem", folder / "node.key"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=tarry"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    tls = {"certificate": str(certificate), "key": str(key), "authority": str(certificate)}
    with Disposable(3, folder / "nodes", {"tls": {**tls, "bind_peers": False}}) as cluster:
        cluster.start()
        yield cluster.addresses, certificate, key


async def test_mutual_tls_carries_everything(certified: tuple[str, Path, Path]) -> None:
    servers, certificate, key = certified
    tls = Tls(
        authorities=certificate.read_bytes(),
        certificate=certificate.read_bytes(),
        private_key=key.read_bytes(),
    )
    async with connect(servers, tls=tls, deadline_ms=30_000) as client:
        scheduled = await client.producer().schedule("tls", b"secret", delay_ms=0)
        async with client.consumer("tls", "g") as consumer:
            message = await anext(consumer)
            assert (message.id, message.body) == (scheduled.id, b"secret")
            await message.ack()


async def test_a_client_without_a_certificate_is_not_let_in(certified: tuple[str, Path, Path]) -> None:
    servers, certificate, _ = certified
    for tls in (None, Tls(authorities=certificate.read_bytes())):
        async with connect(servers, tls=tls, deadline_ms=700) as client:
            with pytest.raises(TarryError):
                await client.producer().schedule("tls", b"x", delay_ms=0)


def test_the_command_line_takes_certificates(certified: tuple[str, Path, Path]) -> None:
    servers, certificate, key = certified
    options = ["--tls-ca", str(certificate), "--tls-certificate", str(certificate), "--tls-key", str(key)]
    result = CliRunner().invoke(app, ["schedule", "tls", "x", "--delay", "1s", "-s", servers, *options])
    assert result.exit_code == 0, result.output
