"""Settings that have to be equal on all nodes: what is told of them, and what differs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tarry.node.config import (
    CheckTimes,
    Consensus,
    Delivery,
    Dispatch,
    Limits,
    NodeConfig,
    TransactionSettings,
)
from tarry.node.defaults import KEYS as OF_THE_CLUSTER
from tarry.node.equal_settings import (
    DIFFERENCES_MAX,
    KEYS,
    VALUE_CHARS_MAX,
    Difference,
    differences,
    heard,
    told,
)
from tarry.node.leader.settings_watch import TOLD_S, SettingsWatch, differing
from tarry.proto.tarry_peer_pb2 import SettingList
from tarry.replication.driver.driver import Driver
from tarry.replication.status import SETTINGS_BYTES_MAX, Hello
from tests.node.test_defaults import config

OTHER = config(
    consensus=Consensus(heartbeat_ms=60),
    limits=Limits(keys_max=3, disk_free_bytes_min=7),
    topics_auto_create=False,
)


def packed(**values: str) -> bytes:
    return SettingList(names=values.keys(), values=values.values()).SerializeToString()


def test_what_differs_is_named_with_both_nodes_and_both_values() -> None:
    assert differences("n1", told(config()), {"n3": told(config()), "n2": told(OTHER)}) == [
        Difference("consensus.heartbeat_ms", "n1", "50", "n2", "60"),
        Difference("limits.keys_max", "n1", "16", "n2", "3"),
        Difference("topics_auto_create", "n1", "true", "n2", "false"),
    ]


def test_every_key_is_one_of_the_configuration_and_none_is_secret_or_of_the_cluster_s_settings() -> None:
    told_of = heard(told(config()))
    assert set(told_of) == set(KEYS)
    assert len(told(config())) < SETTINGS_BYTES_MAX
    assert not {key for key in KEYS if "token" in key or "tls" in key or "data" in key}
    assert not set(KEYS) & set(OF_THE_CLUSTER.values())
    for section in ("consensus", "limits", "delivery"):
        fields = {f"{section}.{name}" for name in type(getattr(config(), section)).model_fields}
        rest = fields - set(KEYS) - set(OF_THE_CLUSTER.values())
        assert rest == ({"limits.disk_free_bytes_min"} if section == "limits" else set())


def test_what_only_one_of_the_two_knows_is_no_difference() -> None:
    later = packed(**heard(told(config())), **{"consensus.of_later": "9"})
    assert differences("n1", told(config()), {"n2": later}) == []
    assert differences("n1", later, {"n2": told(config())}) == []


@given(raw=st.binary(max_size=300) | st.dictionaries(st.text(), st.text()).map(lambda some: packed(**some)))
def test_whatever_a_peer_tells_is_read_without_an_error_and_shows_nothing_that_a_terminal_would_do(
    raw: bytes,
) -> None:
    for value in heard(raw).values():
        assert value.isprintable()
        assert len(value) <= VALUE_CHARS_MAX


def test_of_what_a_hostile_peer_tells_little_is_kept() -> None:
    hostile = packed(**dict.fromkeys(KEYS, "\x1b[31m" + "x" * 10_000))
    found = differences("n1", told(config()), {f"n{n}": hostile for n in range(2, 9)})
    assert len(found) == DIFFERENCES_MAX
    assert {one.other_value for one in found} == {"?[31m" + "x" * (VALUE_CHARS_MAX - 5)}
    uneven = SettingList(names=["shard"] * 5_000, values=["1"]).SerializeToString()
    assert heard(uneven) == {"shard": "1"}


class Status:
    """A driver that has heard hellos."""

    def __init__(self, own: NodeConfig, **others: NodeConfig | None) -> None:
        self.hellos = {node: None if of is None else Hello(2, "", told(of), 1) for node, of in others.items()}
        self.own = Hello(2, "", told(own), 2)
        self.members = {"n1": "a", **dict.fromkeys(others, "b")}

    def status(self) -> Any:
        peers = {node: SimpleNamespace(hello=hello) for node, hello in self.hellos.items()}
        return SimpleNamespace(node="n1", hello=self.own, peers=peers, members=self.members)


def test_a_leader_tells_each_difference_now_and_then_and_no_more_once_it_is_mended() -> None:
    status = Status(config(), n2=OTHER, n3=None)
    driver = cast(Driver, status)
    watch = SettingsWatch(driver)

    def told_at(now_s: float) -> list[tuple[str, dict[str, str]]]:
        with capture_logs() as lines:
            watch.look(now_s)
        assert all(line["log_level"] == "warning" for line in lines)
        return [(line["key"], line["values"]) for line in lines]

    assert told_at(5.0) == [
        ("consensus.heartbeat_ms", {"n1": "50", "n2": "60"}),
        ("limits.keys_max", {"n1": "16", "n2": "3"}),
        ("topics_auto_create", {"n1": "true", "n2": "false"}),
    ]
    assert told_at(6.0) == []
    assert len(told_at(5.0 + TOLD_S)) == 3
    status.hellos["n2"] = Hello(2, "", told(config()), 2)
    assert told_at(5.0 + 2 * TOLD_S) == []
    status.hellos["n2"] = Hello(2, "", told(config(delivery=Delivery(lease_ms_max=5))), 3)
    assert told_at(6.0 + 2 * TOLD_S) == [("delivery.lease_ms_max", {"n1": "43200000", "n2": "5"})]
    del status.members["n2"]
    assert differing(driver) == []


def tables(**checks_max: int) -> NodeConfig:
    groups = {name: CheckTimes(check_pauses_ms=(9,), checks_max=most) for name, most in checks_max.items()}
    return config(transactions=TransactionSettings(groups=groups))


def test_tables_of_producer_groups_are_compared_also_where_only_one_node_has_any() -> None:
    mine, theirs = told(tables(shop=3, mail=1)), {"b": told(tables(mail=1, shop=3))}
    assert differences("a", mine, theirs) == []
    (found,) = differences("a", mine, {"b": told(config())})
    mail = '"mail": {"check_pauses_ms": [9], "checks_max": 1}'
    shop = '"shop": {"check_pauses_ms": [9], "checks_max": 3}'
    shown = "{" + f"{mail}, {shop}" + "}"
    assert found == Difference("transactions.groups", "a", shown, "b", "{}")


def test_tables_that_are_too_long_to_be_shown_differ_also_in_the_last_one() -> None:
    many = {f"group-{number:03}": 5 for number in range(300)}
    mine, theirs = told(tables(**many)), told(tables(**many | {"group-299": 6}))
    assert len(mine) < SETTINGS_BYTES_MAX
    (found,) = differences("a", mine, {"b": theirs})
    assert found.key == "transactions.groups"
    assert found.value.startswith("300 tables, sha256 ")
    assert found.value != found.other_value
    assert differences("a", mine, {"b": mine}) == []


def test_clock_bounds_are_compared_and_a_machine_s_disk_is_not() -> None:
    clocks = config(
        dispatch=Dispatch(clock_offset_ms_max=9, retention_ms=9), limits=Limits(disk_free_bytes_min=9)
    )
    (found,) = differences("a", told(config()), {"b": told(clocks)})
    assert found.key == "dispatch.clock_offset_ms_max"
