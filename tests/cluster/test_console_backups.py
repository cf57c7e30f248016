"""The console's folders, and members: backups as jobs and downloads, and runs of the reconciliation."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tarry.client import sync
from tarry.client.local.cluster import LocalCluster, Setting
from tarry.console.guard import FORM_TOKEN
from tarry.proto.backup_folder import backup_in, parts_of, stream_of
from tests.cluster.consoles import Visitor, console_of, ended
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.test_members import newcomer
from tests.console.reports import write_run

pytestmark = pytest.mark.beside

TOKENS: dict[str, Setting] = {
    "root": {"name": "ops", "produce": ["*"], "consume": ["*"], "operate": True},
    "shop": {"name": "shop", "produce": ["*"], "consume": ["*"]},
}
LARGE = 200
"""Bodies of a quarter MB: more than all buffers on the way to a browser hold."""


class Scene(NamedTuple):
    url: str
    client: sync.Client
    cluster: LocalCluster
    backups: Path

    def visitor(self, token: str = "root") -> Visitor:
        visitor = Visitor(self.url)
        visitor.sign_in(token)
        return visitor


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    settings: dict[str, Setting] = {"tokens": TOKENS, "peer_token": "between-nodes", "consensus": STEADY}
    folder = tmp_path_factory.mktemp("backups")
    given = folder / "given"
    given.mkdir()
    reports = folder / "reports"
    write_run(reports, "one")
    (reports / "unfinished").mkdir()
    (reports / "linked").symlink_to(write_run(folder, "outside"))
    with Disposable(2, folder / "nodes", settings, token="root") as cluster:
        cluster.start()
        cluster.wait_until_serving()
        with (
            console_of(cluster.addresses, "--backups", str(given), "--reports", str(reports)) as url,
            sync.connect(cluster.addresses, token="root") as client,
        ):
            with client.producer() as producer:
                for _ in range(LARGE // 10):
                    producer.schedule_batch("large", [b"x" * 250_000] * 10, delay_ms=[3_600_000] * 10)
            yield Scene(url, client, cluster, given)


def test_a_backup_goes_into_a_folder_as_a_job_and_the_next_sends_what_is_new(scene: Scene) -> None:
    visitor = scene.visitor()
    assert "/cluster/backups" in visitor.get("/cluster")
    assert "There is nothing." in visitor.get("/cluster/backups")
    review, page = visitor.change("/cluster/backups/new", name="daily")
    assert "daily" in review
    assert not (scene.backups / "daily").exists() or "job" in page
    page = ended(visitor, page)
    assert 'badge good">done' in page
    assert "It is whole, and on the disk." in page
    backup = backup_in(scene.backups / "daily")
    assert backup is not None
    assert sum(part.HasField("chunk") for part in parts_of(scene.backups / "daily")) > 1
    page = visitor.get("/cluster/backups")
    assert f"{backup.index:,}" in page
    assert 'badge good">whole' in page
    page = ended(visitor, visitor.change("/cluster/backups/new", name="daily")[1])
    [new] = re.findall(r"([\d.,]+ \w+) new\.", page)
    assert new.endswith(" B") or float(new.split()[0].replace(",", "")) < 1_000
    again = backup_in(scene.backups / "daily")
    assert again is not None
    assert again.number == 2


def test_a_backup_goes_nowhere_else_and_is_for_operators_alone(scene: Scene, tmp_path: Path) -> None:
    visitor = scene.visitor()
    (scene.backups / "link").symlink_to(tmp_path)
    (scene.backups / "full").mkdir()
    (scene.backups / "full" / "mine").touch()
    for name in ("..", "../out", "/etc", "", "link", "a b"):
        assert "Back up into" not in visitor.post("/cluster/backups/new", 400, name=name, confirmed="yes")
    visitor.post("/cluster/backups/new", 404, name="new", node="n9")
    page = ended(visitor, visitor.post("/cluster/backups/new", name="full", confirmed="yes"))
    assert 'badge bad">failed' in page
    assert "name an empty folder" in page
    assert list(tmp_path.iterdir()) == []
    shop = scene.visitor("shop")
    shop.get("/cluster/backups", 403)
    shop.post("/cluster/backups/new", 403, name="new", confirmed="yes")
    shop.post("/cluster/backups/download", 403)
    shop.post("/cluster/add", 403, node="n9", address="127.0.0.1:1", confirmed="yes")
    assert not (scene.backups / "new").exists()


def test_runs_of_the_reconciliation_and_their_findings_are_shown_to_operators_alone(scene: Scene) -> None:
    visitor = scene.visitor()
    page = visitor.get("/reconciliation")
    assert re.findall(r'<a href="/reconciliation/(\w+)">', page) == ["one", "unfinished"]
    assert 'badge bad">broken' in page
    assert "not finished" in page
    page = visitor.get("/reconciliation/one")
    assert "failover 7" in page
    assert "/ledgers/&lt;i&gt;" in page
    page = visitor.get("/reconciliation/one/early")
    assert 'href="/message/0007wk3"' in page
    assert "<td>&lt;b&gt;</td>" in page
    assert "due too soon" not in visitor.get("/reconciliation/one/early?filter=no+message")
    for path in (
        "one/none",
        "unfinished",
        "linked",
        "linked/early",
        "..%2foutside",
        "one%2f..",
        "two",
    ):
        visitor.get(f"/reconciliation/{path}", 404)
    shop = scene.visitor("shop")
    for path in ("", "/one", "/one/early", "/none"):
        assert "PERMISSION_DENIED" in shop.get(f"/reconciliation{path}", 403)
    assert "/reconciliation" not in shop.get("/")


def download(visitor: Visitor) -> Generator[bytes]:
    [token] = set(re.findall(rf'name="{FORM_TOKEN}" value="([0-9a-f]+)"', visitor.get("/sign-in")))
    ends_s = time.monotonic() + 20
    with ExitStack() as open_answers:
        while True:  # the node may still give the one before, whose visitor has just gone
            request = visitor.http.stream("POST", "/cluster/backups/download", data={FORM_TOKEN: token})
            answer = open_answers.enter_context(request)
            if answer.status_code != 503 or time.monotonic() > ends_s:
                break
            time.sleep(0.2)
        assert answer.status_code == 200
        assert re.fullmatch(
            r'attachment; filename="tarry-\d+\.backup"', answer.headers["content-disposition"]
        )
        yield from answer.iter_raw(65_536)


def test_a_download_is_a_backup(scene: Scene) -> None:
    raw = b"".join(download(scene.visitor()))
    assert len(raw) > LARGE * 250_000
    parts = list(stream_of(io.BytesIO(raw)))
    assert parts[0].manifest.index > 0
    assert sum(len(part.chunk.data) for part in parts) == sum(
        file.size_bytes for file in parts[0].manifest.files
    )


def test_a_download_that_breaks_off_is_seen_to_and_leaves_no_traceback(scene: Scene, tmp_path: Path) -> None:
    with (
        (tmp_path / "errors").open("wb") as errors,
        console_of(scene.cluster.addresses, errors=errors) as url,
    ):
        visitor = Visitor(url)
        visitor.sign_in("root")
        assert "--backups" in visitor.get("/cluster/backups")
        left = download(visitor)
        assert next(left)
        left.close()  # the visitor goes away
        other = Visitor(url)
        other.sign_in("root")
        follower = next(name for name in scene.cluster.nodes if name != scene.cluster.wait_until_serving())
        parts = download(other)
        assert next(parts)
        scene.cluster.kill(follower)
        with pytest.raises(httpx.RemoteProtocolError):
            list(parts)
        scene.cluster.start(follower)
        scene.cluster.wait_until_serving()
        assert "<h1>Cluster</h1>" in other.get("/cluster")
    assert "Traceback" not in (tmp_path / "errors").read_text()


def test_a_member_is_added_by_a_job_and_removed(tmp_path: Path) -> None:
    with Disposable(1, tmp_path) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        with console_of(cluster.addresses) as url:
            visitor, node = Visitor(url), newcomer(cluster, "n2")
            review, page = visitor.change("/cluster/add", node="n2", address=node.address)
            assert "There are 2 members then, of which 2 must run." in review
            page = ended(visitor, page)
            assert "Members are n1, n2." in page
            assert 'badge good">done' in page
            page = visitor.get("/cluster")
            assert "Who led, from" in page
            assert 'class="led-0"' in page
            _, told = visitor.change("/cluster/remove", node="n2")
            assert "Members are n1." in told
            visitor.post("/cluster/add", 400, node="n3", address=" ")
            page = ended(
                visitor, visitor.post("/cluster/add", node="n3", address="nonsense", confirmed="yes")
            )
            assert "MEMBER_INVALID" in page
            assert 'badge bad">failed' in page
