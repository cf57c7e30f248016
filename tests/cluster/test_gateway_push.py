"""Pushes of the gateway to a real HTTP receiver that takes, fails, hangs, and redirects where it must not."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry.client.local.cluster import LocalCluster
from tarry.client.local.free_ports import free_ports
from tarry.client.sync import Exponential, connect
from tarry.gateway.push.signature import HEADER, verify
from tests.cluster.gateways import gateway_process

pytestmark = pytest.mark.beside

SECRET = "a secret of sixteen"
PATIENCE_S = 40


@dataclass
class Posted:
    """A post that came in."""

    path: str
    headers: dict[str, str]
    body: bytes
    at_s: float


@dataclass
class Answer:
    """How a receiver answers."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    body_bytes: int = 0


class Receiver:
    """A real HTTP server; ``answers`` says how each post is answered, by its number from 0."""

    def __init__(self, answers: Callable[[int], Answer] = lambda _: Answer()) -> None:
        self.posts: list[Posted] = []
        self.at_once_max = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self.released = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                with receiver._lock:
                    number = len(receiver.posts)
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    receiver.posts.append(Posted(self.path, headers, body, time.time()))
                    receiver._at_once += 1
                    receiver.at_once_max = max(receiver.at_once_max, receiver._at_once)
                answer = answers(number)
                if answer.hangs:
                    receiver.released.wait(PATIENCE_S)
                with receiver._lock:
                    receiver._at_once -= 1
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(answer.body_bytes))
                self.end_headers()
                self.wfile.write(b"x" * answer.body_bytes)

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):
                    super().handle()

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?a=b"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def until(self, count: int) -> list[Posted]:
        """Wait for so many posts, and return them."""
        until(lambda: len(self.posts) >= count)
        return self.posts


def until(ready: Callable[[], Any]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@contextmanager
def pushing(cluster: LocalCluster, folder: Path, topic: str, url: str, **more: Any) -> Iterator[httpx.Client]:
    """Run a gateway that pushes a topic to a URL, and yield an HTTP client of it."""
    push = {"name": topic, "topic": topic, "group": "push", "url": url, "allow_private": True, **more}
    lines = ["[limits]", "end_ms = 3000", "[[push]]", f'secrets = ["{SECRET}", "another secret of more"]']
    for name, value in push.items():
        lines.append(f"{name} = {str(value).lower() if not isinstance(value, str) else repr(value)}")
    file = folder / f"{topic}.toml"
    file.write_text("\n".join(lines))
    with gateway_process(cluster.addresses, "--config", str(file)) as gateway, gateway.client() as http:
        yield http


def schedule(http: httpx.Client, topic: str, **message: Any) -> str:
    answer = http.post(f"/v1/topics/{topic}/messages", json={"delay_ms": 0, **message})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def left(http: httpx.Client, topic: str, group: str = "push") -> list[dict[str, Any]]:
    """Return what of a topic is not settled by the group, once there is one."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        answer = http.get(f"/v1/topics/{topic}/messages", params={"group": group, "cursor": cursor})
        if answer.status_code == 404:
            return [{"state": "of no group yet"}]
        assert answer.is_success, answer.text
        page = answer.json()
        found += [each for each in page["messages"] if each["state"] != "settled"]
        cursor = page["cursor"]
        if not cursor:
            return found


def test_a_due_message_is_posted_signed_and_acknowledged(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    with Receiver() as receiver, pushing(shared_cluster, tmp_path, "taken", receiver.url) as http:
        properties = {"content-type": "application/json"}
        message_id = schedule(http, "taken", body_json={"a": 1}, properties=properties, delay_ms=500)
        (posted,) = receiver.until(1)
        assert (posted.path, posted.body) == ("/hook?a=b", b'{"a":1}')
        headers = posted.headers
        assert headers["content-type"] == "application/json"
        assert (headers["tarry-id"], headers["tarry-attempt"]) == (message_id, "1")
        assert (headers["tarry-topic"], headers["tarry-group"]) == ("taken", "push")
        assert headers["tarry-maybe-duplicate"] == "false"
        assert posted.at_s * 1_000 >= int(headers["tarry-due-ms"]) - 250
        for secret in (SECRET, "another secret of more"):
            assert verify(headers[HEADER.lower()], posted.body, message_id, int(posted.at_s), secret)
        until(lambda: not left(http, "taken"))
        assert len(receiver.posts) == 1


def test_what_a_receiver_fails_is_posted_again_by_the_group_s_back_off(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    with (
        Receiver(lambda number: Answer(500 if number == 0 else 204)) as receiver,
        pushing(shared_cluster, tmp_path, "fails", receiver.url) as http,
    ):
        schedule(http, "fails", body="again")
        first, second = receiver.until(2)
        assert (first.headers["tarry-attempt"], second.headers["tarry-attempt"]) == ("1", "2")
        assert first.headers["tarry-id"] == second.headers["tarry-id"]
        assert second.at_s - first.at_s >= 0.9  # the cluster's first back-off is a second
        until(lambda: not left(http, "fails"))
        metrics = http.get("/metrics").text
        assert 'tarry_gateway_push_posts_total{push="fails",outcome="taken"} 1' in metrics
        assert 'tarry_gateway_push_posts_total{push="fails",outcome="failed"} 1' in metrics


def test_what_a_receiver_never_takes_is_a_dead_letter_by_the_group_s_policy(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    with connect(shared_cluster.addresses) as client:
        client.operator().finish_upgrade()
        client.operator().create_topic("never")
        client.operator().create_group("never", "push", "earliest")
        back_off = Exponential(first_ms=300, max_ms=300, factor=1)
        client.operator().set_group("never", "push", attempts_max=2, back_off=back_off)
        with (
            Receiver(lambda number: Answer(500)) as receiver,
            pushing(shared_cluster, tmp_path, "never", receiver.url) as http,
        ):
            schedule(http, "never", body="in vain")
            first, second = receiver.until(2)
            assert second.at_s - first.at_s >= 0.25
            until(lambda: not left(http, "never"))
            assert len(receiver.posts) == 2
        with client.consumer("dlq.push.never", "g", start="earliest") as consumer:
            letter = next(iter(consumer))
            assert letter.body == b"in vain"
            letter.ack()


def test_retry_after_puts_the_next_attempt_off_within_its_bound(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    answers = [Answer(503, {"retry-after": "3"}), Answer(429, {"retry-after": "86400"}), Answer()]
    with (
        Receiver(lambda number: answers[min(number, 2)]) as receiver,
        pushing(shared_cluster, tmp_path, "asks", receiver.url, retry_after_ms_max=4_000) as http,
    ):
        schedule(http, "asks")
        first, second, third = receiver.until(3)
        assert second.at_s - first.at_s >= 2.9
        assert 3.9 <= third.at_s - second.at_s < 20


def test_a_receiver_that_hangs_is_given_up_and_others_are_posted_meanwhile(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    with (
        Receiver(lambda number: Answer(hangs=number == 0)) as receiver,
        pushing(shared_cluster, tmp_path, "hangs", receiver.url, timeout_ms=1_500) as http,
    ):
        hung = schedule(http, "hangs")
        receiver.until(1)
        quick = schedule(http, "hangs")
        assert receiver.until(2)[1].headers["tarry-id"] == quick
        third = receiver.until(3)[2]
        assert (third.headers["tarry-id"], third.headers["tarry-attempt"]) == (hung, "2")
        until(lambda: not left(http, "hangs"))


def test_posts_at_once_are_bounded(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    with (
        Receiver(lambda _: Answer(hangs=True)) as receiver,
        pushing(shared_cluster, tmp_path, "bounded", receiver.url, in_flight_max=3) as http,
    ):
        for _ in range(10):
            schedule(http, "bounded")
        receiver.until(3)
        time.sleep(1)
        assert len(receiver.posts) == 3
        receiver.released.set()
        receiver.until(10)
        assert receiver.at_once_max <= 3
        until(lambda: not left(http, "bounded"))


def test_redirects_are_not_followed_unless_the_push_says_so(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    with (
        Receiver() as target,
        Receiver(lambda _: Answer(307, {"location": target.url})) as receiver,
        pushing(shared_cluster, tmp_path, "redirects", receiver.url) as http,
    ):
        schedule(http, "redirects")
        receiver.until(2)
        assert target.posts == []
        with pushing(shared_cluster, tmp_path, "followed", receiver.url, redirects_max=1) as other:
            message_id = schedule(other, "followed", body="whole")
            (posted,) = target.until(1)
            assert (posted.body, posted.headers["tarry-id"]) == (b"whole", message_id)
            until(lambda: not left(other, "followed"))


def test_an_answer_of_any_size_is_not_read_into_memory(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    with (
        Receiver(lambda _: Answer(body_bytes=20_000_000)) as receiver,
        pushing(shared_cluster, tmp_path, "large", receiver.url) as http,
    ):
        schedule(http, "large")
        until(lambda: receiver.posts and not left(http, "large"))


def test_private_addresses_are_refused_unless_the_push_allows_them(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        hosts = ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433")
        for number, (host, allowed) in enumerate([*((host, False) for host in hosts), (hosts[0], True)]):
            url, topic = f"https://{host}:{listening.getsockname()[1]}/", f"private-{number}"
            options = {"allow_private": allowed, "timeout_ms": 500}
            with pushing(shared_cluster, tmp_path, topic, url, **options) as http:
                schedule(http, topic)
                until(partial(attempts, http, topic))
            if allowed:  # else the others would tell nothing
                listening.accept()[0].close()
            else:
                with pytest.raises(BlockingIOError):  # nobody has connected
                    listening.accept()


def attempts(http: httpx.Client, topic: str) -> bool:
    """Return whether the push has given the message back."""
    return any(each["state"] == "retrying" for each in left(http, topic))


def test_a_receiver_that_is_away_pauses_the_push_and_gets_all_once_it_is_there(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    with pushing(shared_cluster, tmp_path, "away", f"http://127.0.0.1:{port}/", in_flight_max=2) as http:
        for _ in range(20):
            schedule(http, "away")
        until(lambda: attempts(http, "away"))
        time.sleep(1)
        waiting = [each for each in left(http, "away") if each["state"] in {"waiting", "in_hand", "released"}]
        assert len(waiting) > 5  # the push has paused, and has not used up an attempt of each


def test_told_to_end_a_push_finishes_what_it_posts_and_gives_back_the_rest(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    with Receiver(lambda _: Answer(hangs=True)) as receiver:
        with pushing(shared_cluster, tmp_path, "ends", receiver.url, in_flight_max=1) as http:
            first, second = schedule(http, "ends"), schedule(http, "ends")
            receiver.until(1)
            threading.Timer(1, receiver.released.set).start()
        assert [posted.headers["tarry-id"] for posted in receiver.posts] == [first]
        with pushing(shared_cluster, tmp_path, "ends", receiver.url) as http:
            assert receiver.until(2)[1].headers["tarry-id"] == second
            assert receiver.posts[1].headers["tarry-attempt"] == "1"
            until(lambda: not left(http, "ends"))


def test_two_gateways_share_the_messages_of_a_push(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        Receiver() as receiver,
        pushing(shared_cluster, tmp_path / "a", "shared", receiver.url) as http,
        pushing(shared_cluster, tmp_path / "b", "shared", receiver.url),
    ):
        ids = {schedule(http, "shared") for _ in range(40)}
        receiver.until(40)
        until(lambda: not left(http, "shared"))
        assert sorted(posted.headers["tarry-id"] for posted in receiver.posts) == sorted(ids)
