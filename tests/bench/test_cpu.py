"""CPU accounting of real processes: children that live, children that have ended, a process that is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tarry.bench.side_by_side.cpu import MESSAGES, Meter
from tarry.bench.side_by_side.peers.tarry import Tarry

BURNT_S = 0.2
BURN = f"import time; start = time.process_time()\nwhile time.process_time() < start + {BURNT_S}: pass"
SERVER = f"""
import subprocess, sys
BURN = {BURN!r}
for order in sys.stdin:
    if order == "itself\\n":
        exec(BURN)
    elif order == "ended child\\n":
        subprocess.run([sys.executable, "-c", BURN])
    elif order == "living child\\n":
        child = subprocess.Popen([sys.executable, "-c", BURN + "\\nprint(flush=True); input()"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
    print("done", flush=True)
"""


class Cluster(Tarry):
    """Two processes that spend time when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.servers = [
            subprocess.Popen(
                [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        self.tell("be there")

    def tell(self, order: str, first: int = 0) -> None:
        for server in self.servers[first:]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(f"{order}\n")
            server.stdin.flush()
            assert server.stdout.readline() == "done\n"

    def processes(self) -> Mapping[str, Sequence[int]]:
        return {"leader": [self.servers[0].pid], "followers": [self.servers[1].pid]}

    def close(self) -> None:
        for server in self.servers:
            server.kill()
            server.communicate()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


@pytest.mark.parametrize("who", ["itself", "ended child", "living child"])
def test_what_a_process_and_its_children_spend_counts_once_and_for_its_role(
    cluster: Cluster, who: str
) -> None:
    meter = Meter(cluster)
    cluster.tell(who, first=1)
    figures = meter.figures(MESSAGES)
    assert BURNT_S * 0.9 <= figures["cpu_followers_s"] < BURNT_S * 1.9
    assert figures["cpu_leader_s"] <= BURNT_S / 4


def test_figures_are_for_so_many_messages_and_the_sum_is_that_of_the_parts(cluster: Cluster) -> None:
    meter = Meter(cluster)
    cluster.tell("itself")
    figures = meter.figures(MESSAGES // 10)
    assert figures["cpu_leader_s"] >= 10 * BURNT_S * 0.9
    parts = ("cpu_leader_s", "cpu_followers_s", "cpu_client_s")
    assert figures["cpu_s"] == pytest.approx(sum(figures[part] for part in parts))


def test_what_the_client_spends_is_told_apart(cluster: Cluster) -> None:
    meter = Meter(cluster)
    exec(BURN)
    figures = meter.figures(MESSAGES)
    assert figures["cpu_client_s"] >= BURNT_S * 0.9
    assert figures["cpu_leader_s"] <= BURNT_S / 4


def test_there_are_no_figures_when_a_process_has_ended(cluster: Cluster) -> None:
    meter = Meter(cluster)
    cluster.close()
    assert meter.figures(1) == {}
