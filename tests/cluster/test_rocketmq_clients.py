"""RocketMQ's own clients, unmodified, against the gateway and a real cluster."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tarry.client.aio import connect
from tarry.client.local.cluster import LocalCluster, Setting
from tarry.client.local.rocketmq_programs import JAR, LANGUAGES, command_of, installed, missing
from tarry.gateway.handle import Holder
from tarry.gateway.rocketmq.handles import Handles, Recall, Receipt
from tests.cluster.authority import Authority
from tests.cluster.disposable import Disposable
from tests.cluster.gateways import GatewayProcess, rocketmq_gateway
from tests.cluster.steady import STEADY
from tests.cluster.test_upgrade import level
from tests.gateway.rocketmq_calls import HEADERS, Calls, code, message

pytestmark = pytest.mark.beside

PAGE = Path(__file__).resolve().parents[2] / "gateway/ROCKETMQ.md"
PROGRAMS = Path(__file__).parent / "rocketmq_programs"
TOUR_S = 240
BODIES = {"now", "delayed", "fail", "fifo0", "fifo1", "fifo2"}


@pytest.fixture(scope="module")
def gateway(
    shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    asyncio.run(level(shared_cluster, 2))
    file = tmp_path_factory.mktemp("gateway") / "rocketmq.toml"
    # clients that are told to end wait for their polls first, each as long as the gateway lets it
    file.write_text('fifo_groups = ["in-order"]\n[limits]\nwait_ms_max = 2_000\n')
    with rocketmq_gateway(shared_cluster.addresses, "--config", str(file)) as running:
        yield running


def output_of(command: list[str], folder: Path, **environment: str) -> str:
    """Return what a program prints; its client may log into the folder."""
    done = subprocess.run(
        command,
        env={**os.environ, "HOME": str(folder), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TOUR_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout


def told_by(command: list[str], folder: Path, **environment: str) -> dict[str, Any]:
    """Return the JSON object that a program prints last."""
    told = json.loads(output_of(command, folder, **environment).splitlines()[-1])
    assert isinstance(told, dict)
    return told


def check_tour(told: dict[str, Any]) -> None:
    """Hold a tour to what every client has to see."""
    assert told["now_id"] == [True]
    assert told["recalls"] == ["OK", "OK"]
    assert told["all_came"], told
    seen = told["seen"]
    assert {body for body, *_ in seen} == BODIES  # the recalled one is not there
    assert [attempt for body, attempt, *_ in seen if body == "fail"] == [1, 2]
    assert all(attempt == 1 for body, attempt, *_ in seen if body != "fail")
    assert not any(corrupted for *_, corrupted in seen)
    (came_ms,) = [came_ms for body, _, came_ms, _ in seen if body == "delayed"]
    assert came_ms >= told["due_ms"]
    assert [body for body, *_ in seen if body.startswith("fifo")] == ["fifo0", "fifo1", "fifo2"]
    assert "40401" in told["recall_of_delivered"] or "MESSAGE_NOT_FOUND" in told["recall_of_delivered"]
    assert set(told["simple"]) == BODIES
    assert told["rest"] == []


with_python = pytest.mark.skipif(
    find_spec("rocketmq") is None, reason="rocketmq-python-client is not installed"
)


@with_python
def test_python_s_client_sends_recalls_receives_and_keeps_the_order(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    told = told_by([sys.executable, str(PROGRAMS / "tour.py"), gateway.url, "tour-python"], tmp_path)
    check_tour(told)
    assert told["simple"]["fifo0"] == "tag {'colour': 'red'} ['key-fifo0']"


@with_python
async def test_python_s_client_repeats_in_order_what_it_fails_at_and_then_gives_it_up(
    gateway: GatewayProcess, shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    async with connect(shared_cluster.addresses) as client:
        await client.operator().create_topic("python-order")
        await client.operator().create_group("python-order", "in-order")
        await client.operator().set_group("python-order", "in-order", attempts_max=3, back_off=[100])
        command = [sys.executable, str(PROGRAMS / "order.py"), gateway.url, "python-order", "in-order"]
        told = await asyncio.to_thread(told_by, command, tmp_path)
        assert told == {"came": True, "seen": ["first", *["poison"] * 3, "third", "last"]}
        letters = client.puller("dlq.in-order.python-order", "undertaker", start="earliest")
        (letter,) = await letters.receive(2, wait_ms=10_000)
        assert letter.body == b"poison"


def client_of(language: str, program: str, file: str) -> Path:
    """Return where a language's client is; skip the test where it, or the language, is not there."""
    if why := missing(language, program, file):
        pytest.skip(why)
    return installed(language)


def test_node_s_client_goes_the_same_way(gateway: GatewayProcess, tmp_path: Path) -> None:
    modules = client_of("node", "node", "node_modules/rocketmq-client-nodejs") / "node_modules"
    command = ["node", str(PROGRAMS / "tour.cjs"), gateway.url, "tour-node"]
    check_tour(told_by(command, tmp_path, NODE_PATH=str(modules)))


def test_java_s_client_goes_the_same_way(gateway: GatewayProcess, tmp_path: Path) -> None:
    jar = client_of("java", "java", JAR) / JAR
    command = ["java", "-Xmx256m", "-cp", str(jar), str(PROGRAMS / "Tour.java"), gateway.url, "tour-java"]
    check_tour(told_by(command, tmp_path))


def test_go_s_client_goes_the_same_way(gateway: GatewayProcess, tmp_path: Path) -> None:
    module = client_of("go", "go", "go.sum")
    built = ["go", "build", "-o", str(tmp_path / "tour"), str(PROGRAMS / "tour.go")]
    subprocess.run(built, cwd=module, check=True, capture_output=True, timeout=TOUR_S)
    check_tour(told_by([str(tmp_path / "tour"), gateway.url, "tour-go"], tmp_path))


@with_python
def test_the_page_s_example_runs(gateway: GatewayProcess, tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = example.replace("127.0.0.1:8081", gateway.url) + 'print("{}")\n'
    assert program != example
    told_by([sys.executable, "-c", program], tmp_path)


TOKENS: dict[str, Setting] = {
    "shop-token": {"produce": ["tour-*"], "consume": ["tour-*"]},
    "root-token": {"produce": ["*"], "consume": ["*"], "operate": True},
}
FILE = """
secrets = ["a secret of the handles"]
[[key]]
access_key = "shop"
secret_key = "of the shop"
token = "shop-token"
[limits]
wait_ms_max = 2_000
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, Path]]:
    """A cluster with tokens behind a gateway with TLS and access keys, and the authority's file."""
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder)
    authority.sign("gateway", "/CN=gateway")
    (folder / "rocketmq.toml").write_text(FILE)
    settings: dict[str, Setting] = {"tokens": TOKENS, "peer_token": "between-nodes", "consensus": STEADY}
    with Disposable(1, folder / "cluster", settings, token="root-token") as cluster:
        cluster.start()
        cluster.wait_until_serving()
        arguments = ["--config", str(folder / "rocketmq.toml")]
        arguments += ["--certificate", str(folder / "gateway.pem"), "--key", str(folder / "gateway.key")]
        with rocketmq_gateway(cluster.addresses, *arguments) as running:
            yield running, folder / "authority.pem"


@pytest.mark.parametrize("language", LANGUAGES)
def test_clients_go_the_same_way_over_tls_with_an_access_key_and_a_namespace(
    guarded: tuple[GatewayProcess, Path], tmp_path: Path, language: str
) -> None:
    if why := LANGUAGES[language]():
        pytest.skip(why)
    gateway, authority = guarded
    program = asyncio.run(command_of(language, PROGRAMS, "tour", tmp_path))
    command = [*program.words, gateway.url, f"guarded-{language}", "shop", "of the shop", "tour-eu"]
    roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority)}  # Java's and Go's clients take any
    check_tour(told_by(command, tmp_path, **roots, **program.environment))


def signed(secret: str) -> tuple[tuple[str, str], ...]:
    signature = hmac.digest(secret.encode(), b"20261127T090000Z", "sha1").hex()
    text = f"MQv2-HMAC-SHA1 Credential=shop, SignedHeaders=x-mq-date-time, Signature={signature}"
    return (*HEADERS, ("x-mq-date-time", "20261127T090000Z"), ("authorization", text))


async def test_a_key_s_rights_are_those_of_its_token(guarded: tuple[GatewayProcess, Path]) -> None:
    gateway, authority = guarded
    for headers, topic, expected in [
        (HEADERS, "tour-a", "UNAUTHORIZED"),
        (signed("wrong"), "tour-a", "UNAUTHORIZED"),
        (signed("of the shop"), "tour-a", "OK"),
        (signed("of the shop"), "others", "FORBIDDEN"),
    ]:
        async with Calls(gateway.url, headers, authority.read_bytes()) as call:
            assert code((await call.send(message(topic))).status) == expected
            status, _ = await call.receive(topic, wait_ms=0)
            assert status in (expected, "MESSAGE_NOT_FOUND" if expected == "OK" else expected)


async def test_handles_of_another_secret_are_refused(guarded: tuple[GatewayProcess, Path]) -> None:
    """Somebody who has no secret has made them up, be it with all the right names."""
    gateway, authority = guarded
    receipt = Receipt(Holder("tour-b", "g", "rocketmq-1", 1, 0), 7, push=True)
    recall = Recall("tour-b", "0000000f70h0000000n", "01AA")
    async with Calls(gateway.url, signed("of the shop"), authority.read_bytes()) as call:
        for handles, expected in [
            (Handles([]), "BAD_REQUEST"),
            (Handles(["a secret of the handles"]), "MESSAGE_NOT_FOUND"),
        ]:
            answer = await call.recall("tour-b", handles.recall(recall))
            assert code(answer.status) == expected
        made_up = message("tour-b", receipt_handle=Handles([]).receipt(receipt))
        assert await call.ack("tour-b", made_up) == ["INVALID_RECEIPT_HANDLE"]
