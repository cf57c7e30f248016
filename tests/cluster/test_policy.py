"""Policies of groups on real nodes: by the API and the command line, and under every leader."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tarry.client.aio import Client, Exponential, connect
from tarry.client.cli.main import app
from tarry.client.local.cluster import LocalCluster
from tests.cluster.disposable import Disposable
from tests.cluster.test_upgrade import level

PATIENCE_S = 20


def tarry(cluster: LocalCluster, *arguments: str) -> Any:
    """Return what a command prints for programs."""
    result = CliRunner().invoke(app, [*arguments, "-o", "json", "-s", cluster.addresses])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(cluster: LocalCluster, *arguments: str) -> Any:
    """Return the error of a command that the cluster refuses."""
    result = CliRunner().invoke(app, [*arguments, "-o", "json", "-s", cluster.addresses])
    assert result.exit_code == 1, result.output
    return json.loads(result.stderr)


def test_a_policy_is_set_shown_and_unset_by_the_command_line(tmp_path: Path) -> None:
    with Disposable(1, tmp_path) as cluster:
        cluster.start()
        asyncio.run(level(cluster, 2))
        unknown = refused(cluster, "group", "set", "orders", "readers", "--lease", "5s")
        assert unknown["error"] == "TOPIC_UNKNOWN"
        tarry(cluster, "topic", "create", "orders", "--attempts", "5", "--lease", "10s")
        missing = refused(cluster, "group", "set", "orders", "readers", "--lease", "5s")
        assert (missing["error"], "create it" in missing["text"]) == ("GROUP_UNKNOWN", True)
        tarry(cluster, "group", "create", "orders", "readers")
        shown = tarry(cluster, "group", "set", "orders", "readers", "--lease", "5s", "--back-off", "1s..1m")
        growing = {"first_ms": 1_000, "max_ms": 60_000, "factor": 2}
        assert shown["policy"] == {
            "attempts_max": 5,
            "back_off": growing,
            "lease_ms": 5_000,
            "dead_letter_topic": "dlq.readers.orders",
            "dead_letter_retention_ms": 14 * 86_400_000,
            "delivery_per_s_max": 0,
            "delay_ms": 0,
        }
        assert shown["own"] == {"back_off": growing, "lease_ms": 5_000}
        assert by(shown) == {"attempts_max": "topic", "back_off": "group", "lease_ms": "group"}
        assert tarry(cluster, "group", "show", "orders", "readers") == shown
        shown = tarry(cluster, "group", "set", "orders", "readers", "--attempts", "2", "--unset", "lease_ms")
        assert by(shown) == {"attempts_max": "group", "back_off": "group", "lease_ms": "topic"}
        shown = tarry(cluster, "topic", "set", "orders", "--retention", "1h", "--unset", "lease_ms")
        assert (shown["group_policy"], shown["retention_ms"]) == ({"attempts_max": 5}, 3_600_000)
        assert tarry(cluster, "group", "show", "orders", "readers")["policy"]["lease_ms"] == 30_000
        short = refused(cluster, "group", "set", "orders", "readers", "--lease", "1ms")
        assert (short["error"], "within 100 to" in short["text"]) == ("SETTING_INVALID", True)
        table = CliRunner().invoke(app, ["group", "show", "orders", "readers", "-s", cluster.addresses])
        assert "1s..1m (group)" in table.stdout


def by(shown: Any) -> dict[str, str]:
    """Return who sets what of a policy, where a group or its topic does."""
    return {name: layer for name, layer in shown["set_by"].items() if layer in ("group", "topic")}


async def attempts(client: Client, topic: str) -> int:
    """Nack a message until it comes no more; return how often it was delivered."""
    async with client.consumer(topic, "g") as consumer, client.consumer(f"dlq.g.{topic}", "u") as dead:
        await client.producer().schedule(topic, b"x", delay_ms=0)
        count = 0

        async def nacked() -> None:
            nonlocal count
            async for message in consumer:
                count += 1
                await message.nack()

        nacking = asyncio.create_task(nacked())
        async with asyncio.timeout(PATIENCE_S):
            await (await anext(dead)).ack()
        nacking.cancel()
        return count


def test_the_next_leader_delivers_by_the_same_policy_whatever_its_file_says(tmp_path: Path) -> None:
    with Disposable(3, tmp_path) as cluster:
        for number, node in enumerate(cluster.nodes.values(), 2):
            own = f"\n[delivery]\nattempts_max = {10 * number}\nback_off_ms = [3600000]\n"
            node.config.write_text(node.config.read_text() + own)
        cluster.start()
        asyncio.run(level(cluster, 2))

        async def work() -> None:
            async with connect(cluster.addresses) as client:
                operator = client.operator()
                await operator.create_group("t", "g")
                told = await operator.set_group("t", "g", attempts_max=3, back_off=Exponential(20, 40))
                assert (told.set_by["attempts_max"], told.set_by["back_off"]) == ("group", "group")
                for _ in cluster.nodes:
                    assert await attempts(client, "t") == 3
                    await operator.transfer()

        asyncio.run(work())


def test_letters_go_to_a_shared_topic_and_back_to_their_groups_or_nowhere(tmp_path: Path) -> None:
    with Disposable(1, tmp_path) as cluster:
        cluster.start()
        asyncio.run(level(cluster, 2))
        tarry(cluster, "topic", "create", "orders", "--attempts", "1", "--dead-letter-topic", "dlq.shared")
        for group in ("a", "b", "c"):
            tarry(cluster, "group", "create", "orders", group)
        tarry(cluster, "group", "set", "orders", "c", "--dead-letter-topic", "none")
        hostile = ("orders", "dlq.", "dlq.misfired.orders", "dlq." + "x" * 400)
        for name in hostile:
            wrong = refused(cluster, "group", "set", "orders", "a", "--dead-letter-topic", name)
            assert wrong["error"] == "SETTING_INVALID"

        async def work() -> None:
            async with connect(cluster.addresses) as client:
                await client.producer().schedule("orders", b"x", delay_ms=0)
                for group in ("a", "b", "c"):
                    async with client.consumer("orders", group) as consumer, asyncio.timeout(PATIENCE_S):
                        await (await anext(consumer)).nack()
                async with client.consumer("dlq.shared", "u") as dead, asyncio.timeout(PATIENCE_S):
                    letters = [await anext(dead) for _ in range(2)]
                    assert {one.properties["tarry.group"] for one in letters} == {"a", "b"}
                done = await client.operator().redrive("dlq.shared")
                assert (done.looked_at, done.redriven) == (2, 2)
                for group in ("a", "b"):
                    async with client.consumer("orders", group) as consumer, asyncio.timeout(PATIENCE_S):
                        await (await anext(consumer)).ack()
                topics = (await client.operator().status()).topics
                (status,) = (one for one in topics if one.topic == "orders")
                assert {one.group: one.dropped for one in status.groups} == {"a": 0, "b": 0, "c": 1}

        asyncio.run(work())
        circle = refused(cluster, "topic", "set", "dlq.shared", "--dead-letter-topic", "dlq.other")
        assert (circle["error"], "in a circle" in circle["text"]) == ("SETTING_INVALID", True)


def test_a_group_gets_its_rate_also_from_the_next_leader_and_another_group_gets_all_at_once(
    tmp_path: Path,
) -> None:
    per_s, count = 200, 800
    with Disposable(3, tmp_path) as cluster:
        cluster.start()
        asyncio.run(level(cluster, 2))
        tarry(cluster, "group", "create", "t", "held")
        tarry(cluster, "group", "create", "t", "free")
        shown = tarry(cluster, "group", "set", "t", "held", "--delivery-rate", str(per_s))
        assert (shown["policy"]["delivery_per_s_max"], by(shown)) == (per_s, {"delivery_per_s_max": "group"})

        async def taken(client: Client, group: str) -> list[float]:
            loop, times = asyncio.get_running_loop(), list[float]()
            async with client.consumer("t", group, credit=2 * count) as consumer:
                async for _ in consumer:  # and is in hand to the end: no ack takes time
                    times.append(loop.time())
                    if len(times) == count:
                        break
            return times

        async def work() -> None:
            async with connect(cluster.addresses) as client:
                producer = client.producer()
                await asyncio.gather(*(producer.schedule("t", b"x", delay_ms=0) for _ in range(count)))
                takes = [asyncio.create_task(taken(client, group)) for group in ("held", "free")]
                await asyncio.sleep(1)
                await client.operator().transfer()
                async with asyncio.timeout(PATIENCE_S):
                    held, free = await asyncio.gather(*takes)
                whole_s = count / per_s
                assert 0.9 * whole_s <= held[-1] - held[0] <= 2 * whole_s
                assert held[count // 2] - held[0] >= 0.4 * whole_s
                assert free[-1] - free[0] < 0.5 * whole_s

        asyncio.run(work())


def test_the_cluster_s_settings_are_seeded_from_the_first_leader_s_file_and_then_set_by_commands(
    tmp_path: Path,
) -> None:
    written = "\ndelay_levels_ms = [1, 2]\n[delivery]\nattempts_max = 5\n[dispatch]\nretention_ms = 7200000\n"
    with Disposable(3, tmp_path) as cluster:
        for node in cluster.nodes.values():
            whole = node.config.read_text()
            top, section, rest = whole.partition("\n[")
            head, _, tables = written.partition("[delivery]")
            node.config.write_text(top + head + "[delivery]" + tables + section + rest)
        cluster.start()
        asyncio.run(level(cluster, 2))
        seeded = {"attempts_max": 5, "retention_ms": 7_200_000, "delay_levels_ms": [1, 2]}
        for _ in range(100):
            shown = tarry(cluster, "cluster", "show")
            if shown["own"]:
                break
        assert shown["own"] == seeded
        assert {name for name, layer in shown["set_by"].items() if layer == "cluster"} == set(seeded)
        assert set(shown["set_by"].values()) == {"cluster", "default"}
        shown = tarry(
            cluster, "cluster", "set", "--lease", "7s", "--group-expiry", "0s", "--delay-levels", "3s,4s",
            "--dead-letter-retention", "3d",
        )  # fmt: skip
        assert shown["settings"]["lease_ms"] == 7_000
        assert shown["own"] == seeded | {
            "lease_ms": 7_000,
            "group_expiry_ms": 0,
            "delay_levels_ms": [3_000, 4_000],
            "dead_letter_retention_ms": 3 * 86_400_000,
        }
        shown = tarry(cluster, "cluster", "unset", "attempts_max", "delay_levels_ms")
        assert (shown["settings"]["attempts_max"], shown["set_by"]["attempts_max"]) == (16, "default")
        assert len(shown["settings"]["delay_levels_ms"]) == 18
        tarry(cluster, "group", "create", "orders", "readers")
        group = tarry(cluster, "group", "show", "orders", "readers")
        assert (group["policy"]["lease_ms"], group["set_by"]["lease_ms"]) == (7_000, "cluster")
        assert (group["policy"]["attempts_max"], group["set_by"]["attempts_max"]) == (16, "default")
        topic = tarry(cluster, "topic", "set", "orders", "--attempts", "4", "--delivery-rate", "9")
        assert topic["group_policy"] == {"attempts_max": 4, "delivery_per_s_max": 9}
        assert (topic["policy"]["attempts_max"], topic["policy"]["lease_ms"]) == (4, 7_000)
        assert (topic["retention_ms"], topic["kept_ms"]) == (0, 7_200_000)
        layers = {
            name: topic["set_by"][name] for name in ("attempts_max", "lease_ms", "back_off", "retention_ms")
        }
        assert layers == {
            "attempts_max": "topic", "lease_ms": "cluster", "back_off": "default", "retention_ms": "cluster",
        }  # fmt: skip
        tarry(cluster, "topic", "create", "dlq.readers.orders")
        letters = tarry(cluster, "topic", "show", "dlq.readers.orders")
        assert (letters["kept_ms"], letters["set_by"]["retention_ms"]) == (3 * 86_400_000, "groups")
        told = CliRunner().invoke(app, ["topic", "show", "orders", "-s", cluster.addresses])
        assert "2h (cluster)" in told.stdout
        tarry(cluster, "transfer")
        assert tarry(cluster, "cluster", "show") == shown
        wrong = refused(cluster, "cluster", "set", "--lease", "1ms")
        assert (wrong["error"], "within 100 to" in wrong["text"]) == ("SETTING_INVALID", True)
        unknown = refused(cluster, "cluster", "unset", "retries")
        assert (unknown["error"], "name some of" in unknown["text"]) == ("SETTING_INVALID", True)
        table = CliRunner().invoke(app, ["cluster", "show", "-s", cluster.addresses])
        assert "lease_ms" in table.stdout
        assert "7s" in table.stdout
