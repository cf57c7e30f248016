"""Leaders that are killed under HTTP clients: nothing lost, and what comes twice says that it may."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry.client.local.cluster import LocalCluster
from tests.cluster.gateways import GatewayProcess, gateway_process
from tests.cluster.test_gateway_push import Receiver, left, pushing, until

pytestmark = pytest.mark.beside

PATIENCE_S = 60
DONE = {200, 201}
AGAIN = {429, 503, 504}


class Runner:
    """HTTP clients of a topic until they are told to end; a request without an outcome is made again."""

    def __init__(self, gateway: GatewayProcess, topic: str) -> None:
        self.scheduled: dict[str, str] = {}
        self.received: list[dict[str, Any]] = []
        self.acknowledged: set[str] = set()
        """Also what perhaps was: a repeated call does not find in hand what the one before acknowledged."""
        self.unexpected: list[str] = []
        self._gateway, self._topic = gateway, topic
        self._ends = threading.Event()
        self._settles = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._schedule, self._receive)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """End: first what schedules, then, once all was received, what receives."""
        self._ends.set()
        self._threads[0].join(PATIENCE_S)
        deadline_s = time.monotonic() + PATIENCE_S
        while set(self.scheduled.values()) - self.acknowledged and time.monotonic() < deadline_s:
            if not self.left():  # what the cluster has as settled is acknowledged no more
                break
            time.sleep(0.5)
        self._settles.set()
        self._threads[1].join(PATIENCE_S)

    def left(self) -> list[str]:
        """Tell what is not settled: as it was received, and as the cluster has it.

        The gateway, too, repeats what had no answer: an acknowledgement that it then calls stale may have
        been taken, and the cluster knows.
        """
        with self._gateway.client() as http:
            unsettled = {each["id"] for each in left(http, self._topic, "g")}
            waiting = (set(self.scheduled.values()) - self.acknowledged) & unsettled
            return [
                f"{[each for each in self.received if each['id'] == one]}: "
                f"{http.get(f'/v1/messages/{one}').text}"
                for one in sorted(waiting)
            ]

    def _call(self, http: httpx.Client, path: str, body: Any) -> tuple[Any, bool]:
        """Return what is answered, and whether the call was repeated."""
        repeated = False
        while True:
            answer = http.post(path, json=body)
            if answer.status_code in DONE:
                return answer.json(), repeated
            if answer.status_code not in AGAIN:
                self.unexpected.append(f"{path}: {answer.status_code} {answer.text}")
                return None, repeated
            repeated = True

    def _schedule(self) -> None:
        with self._gateway.client() as http:
            number = 0
            while not self._ends.is_set():
                key, number = f"{self._topic}-{number}", number + 1
                body = {"delay_ms": 100, "body": key, "idempotency_key": key}
                answer, _ = self._call(http, f"/v1/topics/{self._topic}/messages", body)
                if answer is not None:
                    self.scheduled[key] = answer["id"]

    def _receive(self) -> None:
        with self._gateway.client() as http:
            while not self._settles.is_set():
                path = f"/v1/topics/{self._topic}/groups/g/receive"
                body = {"messages_max": 20, "wait_ms": 500, "lease_ms": 2_000}
                answer, _ = self._call(http, path, body)
                messages = answer["messages"] if answer else []
                self.received += messages
                if not messages:
                    continue
                by_handle = {message["handle"]: message["id"] for message in messages}
                settled, repeated = self._call(http, "/v1/ack", {"handles": list(by_handle)})
                for each in settled["messages"] if settled else []:
                    if each["outcome"] == "ok" or repeated:
                        self.acknowledged.add(by_handle[each["handle"]])


def kill_leaders(cluster: LocalCluster, times: int) -> None:
    for _ in range(times):
        killed = cluster.wait_for_leader()
        cluster.kill(killed)
        cluster.wait_for_leader()
        time.sleep(1)
        cluster.start(killed)
        cluster.wait_until_serving(60)


def test_leaders_killed_under_http_clients_lose_nothing_and_mark_repetitions(cluster: LocalCluster) -> None:
    with gateway_process(cluster.addresses) as gateway:
        with gateway.client() as http:  # what a new cluster needs for idempotency keys
            body = {"delay_ms": 9**9, "idempotency_key": "a"}
            until(lambda: http.post("/v1/topics/w/messages", json=body).is_success)
        runner = Runner(gateway, "killed")
        runner.start()
        time.sleep(1)
        kill_leaders(cluster, 2)
        runner.finish()
        waiting = runner.left()
    assert runner.unexpected == []
    ids = list(runner.scheduled.values())
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)
    assert waiting == []
    assert runner.acknowledged <= {message["id"] for message in runner.received}
    seen: set[str] = set()
    for message in runner.received:
        assert message["id"] not in seen or message["maybe_duplicate"] or message["attempt"] > 1, message
        seen.add(message["id"])
    assert seen == set(ids)  # nothing was scheduled twice, though requests were repeated


def test_leaders_killed_under_pushes_lose_nothing_and_mark_repetitions(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with Receiver() as receiver, pushing(cluster, tmp_path, "pushed", receiver.url) as http:
        ids = set()
        for number in range(60):
            body = {"delay_ms": 100 * number, "idempotency_key": str(number)}
            answer = http.post("/v1/topics/pushed/messages", json=body)
            assert answer.status_code == 201, answer.text
            ids.add(answer.json()["id"])
        kill_leaders(cluster, 1)
        until(lambda: ids <= {posted.headers["tarry-id"] for posted in receiver.posts})
        seen = set()
        for posted in receiver.posts:
            marked = (
                posted.headers["tarry-maybe-duplicate"] == "true" or posted.headers["tarry-attempt"] != "1"
            )
            assert posted.headers["tarry-id"] not in seen or marked
            seen.add(posted.headers["tarry-id"])
        assert seen == ids
