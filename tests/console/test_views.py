"""Views of the console: pure functions of what the cluster answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tarry.client.aio import ListedMessage
from tarry.client.errors import Unavailable
from tarry.client.operators.cluster_status import ClusterStatus, Rights, SettingDifference
from tarry.console.forms import (
    CLUSTER_FIELDS,
    POLICY_FIELDS,
    TOPIC_FIELDS,
    Misread,
    changes,
    read,
    texts,
)
from tarry.console.views import cells
from tarry.console.views.ahead import ahead_of, span_of
from tarry.console.views.alarms import alarms
from tarry.console.views.body import SHOWN_BYTES_MAX, body_text, form_of_body
from tarry.console.views.cluster import node_rows
from tarry.console.views.messages import choice_of, notes_of
from tarry.console.watch import Look
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto import tarry_query_pb2 as query_pb

PENDING = [3, 0, 5, *([1] * 297)]
DEEP = b"[" * 500 + b"1," * 10_000 + b"1" + b"]" * 500
"""JSON that grows to 10 MB when its lines are indented."""
NOW_MS = 1_800_000_000_450


def status(node: str = "n1", **changed: object) -> ClusterStatus:
    members = [
        pb.Member(node=f"n{at}", address=f"127.0.0.1:{at}", connected=True, match_index=100)
        for at in (1, 2, 3)
    ]
    answer = pb.ClusterStatusResponse(
        node=node, leader="n1", term=3, commit_index=100, applied_index=100, members=members, now_ms=NOW_MS
    )
    return replace(ClusterStatus.of(answer), **{"lease": node == "n1", **changed})  # type: ignore[arg-type]


def answers(**changed: object) -> dict[str, ClusterStatus | Unavailable]:
    return {f"127.0.0.1:{at}": status(f"n{at}", **changed if at == 1 else {}) for at in (1, 2, 3)}


def test_the_span_begins_with_the_present_second() -> None:
    ahead = ahead_of(PENDING, NOW_MS, {})
    assert (ahead.start_ms, ahead.total, ahead.most, ahead.chosen) == (
        1_800_000_000_000,
        sum(PENDING),
        5,
        False,
    )
    assert ahead.rows()[:2] == [
        {"at_ms": 1_800_000_000_000, "pending": 3},
        {"at_ms": 1_800_000_002_000, "pending": 5},
    ]
    assert len(ahead_of(PENDING, NOW_MS, {"span": "60"}).seconds) == 60


@pytest.mark.parametrize(
    ("from_s", "to_s", "total"), [(0, 1, 3), (0, 3, 8), (2, 3, 5), (-60, 3, 8), (2, 9_999, 302), (-9, -1, 0)]
)
def test_a_range_has_the_seconds_from_its_begin_to_before_its_end(from_s: int, to_s: int, total: int) -> None:
    start_s = NOW_MS // 1_000
    values = {"from": str((start_s + from_s) * 1_000), "to": str((start_s + to_s) * 1_000)}
    ahead = ahead_of(PENDING, NOW_MS, values)
    assert ahead.chosen
    assert (ahead.total, sum(row["pending"] for row in ahead.rows())) == (total, total)


@pytest.mark.parametrize(
    ("from_s", "to_s", "total", "beyond"), [(400, 500, 100, False), (3_500, 3_700, 100, True)]
)
def test_a_range_behind_the_span_is_shown_as_far_as_it_is_known(
    from_s: int, to_s: int, total: int, beyond: bool
) -> None:
    start_s = NOW_MS // 1_000
    values = {"from": str((start_s + from_s) * 1_000), "to": str((start_s + to_s) * 1_000), "span": "60"}
    ahead = ahead_of([1] * 3_600, NOW_MS, values)
    assert (ahead.total, ahead.beyond) == (total, beyond)
    assert ahead.range_ms[0] == (start_s + from_s) * 1_000
    assert not ahead_of((), NOW_MS, values).beyond


@pytest.mark.parametrize(
    "values",
    [
        {"from": "x", "to": "2"},
        {"from": "5", "to": "5"},
        {"from": "9" * 40, "to": "1"},
        {"to": "5"},
        {"span": "17"},
        {"span": "<"},
    ],
)
def test_a_range_that_is_none_is_the_whole_span(values: dict[str, str]) -> None:
    ahead = ahead_of(PENDING, NOW_MS, values)
    assert (ahead.chosen, ahead.total, span_of(values)) == (False, sum(PENDING), "300")


def test_a_healthy_cluster_has_no_alarms() -> None:
    assert alarms(answers(), status()) == []


@pytest.mark.parametrize(
    ("changed", "kind", "text"),
    [
        ({"lease": False, "leader": ""}, "bad", "no node leads"),
        ({"lease": False}, "warn", "n1 leads, and does not serve yet"),
        (
            {"overdue": 1_500, "oldest_overdue_ms": 90_000},
            "bad",
            "1,500 messages are overdue, the oldest by 1m30s",
        ),
        ({"damaged_left": 2}, "bad", "n1 has 2 damaged records"),
        (
            {"differing": (SettingDifference("a.b", "n1", "1", "n2", "2"),)},
            "warn",
            "a.b is 1 at n1 and 2 at n2",
        ),
    ],
)
def test_what_is_wrong_is_an_alarm_with_what_to_do(changed: dict[str, object], kind: str, text: str) -> None:
    found = alarms(answers(**changed), status(**changed))
    assert [(alarm.kind, text in alarm.text, bool(alarm.advice)) for alarm in found] == [(kind, True, True)]


def test_members_that_are_silent_cut_off_behind_or_of_another_time_are_alarms() -> None:
    best = status()
    n1, n2, n3 = best.members
    best = replace(
        best,
        applied_index=50_000,
        members=(
            replace(n1, match_index=50_000),
            replace(n2, match_index=100, clock_offset_ms=-2_500),
            replace(n3, connected=False, blocked="127.0.0.1:9: refused"),
        ),
    )
    texts_of = [alarm.text for alarm in alarms(answers(), best)]
    assert texts_of == [
        "n3 is not connected to n1",
        "n2 is 49,900 entries behind",
        "the clock of n2 is 2.500s behind that of n1",
        "n1 cannot reach n3 at 127.0.0.1:9: refused",
    ]
    silent = {**answers(), "127.0.0.1:2": Unavailable("UNREACHABLE", "no answer")}
    assert [alarm.text for alarm in alarms(silent, status())] == ["n2 does not answer at 127.0.0.1:2"]
    assert [alarm.text for alarm in alarms({"127.0.0.1:2": silent["127.0.0.1:2"]}, None)] == [
        "no node answers"
    ]


def test_each_node_has_a_row_and_a_silent_member_too() -> None:
    heard = {"127.0.0.1:1": status(), "127.0.0.1:2": Unavailable("UNREACHABLE", "no answer")}
    rows = node_rows(Look(heard, status(), {}, (), ()))
    assert [(row["node"], row["role"], row["lag"]) for row in rows] == [
        ("n1", "leader", 0),
        ("n2", "no answer: UNREACHABLE", 0),
        ("n3", "no answer", 0),
    ]


@pytest.mark.parametrize(
    ("body", "form", "shown"),
    [
        (b"hello", "text", "hello"),
        (b'{"a":1}', "json", '{\n  "a": 1\n}'),
        (b"{not json", "text", "{not json"),
        (b"\xff\x00A", "hex", "00000000  ff 00 41" + " " * 41 + "..A"),
        (b"", "text", ""),
        (b"[" * 100_000, "text", "[" * SHOWN_BYTES_MAX),
        (b"[" * 60_000 + b"]" * 60_000, "text", "[" * 60_000 + "]" * (SHOWN_BYTES_MAX - 60_000)),
        (b'{"a": "\\ud800"}', "text", '{"a": "\\ud800"}'),
        (DEEP, "text", DEEP.decode()),
    ],
)
def test_a_body_is_shown_in_the_form_that_suits_it(body: bytes, form: str, shown: str) -> None:
    assert form_of_body(body, "") == form
    assert body_text(body, form) == shown


def test_a_body_is_shown_in_the_form_that_is_asked_for() -> None:
    assert form_of_body(b"hello", "hex") == "hex"
    assert form_of_body(b"hello", "<b>") == "text"
    assert body_text(b"hello", "json") == "hello"
    assert body_text(b"\xffa", "text") == "\ufffda"


def test_rights_go_by_patterns() -> None:
    rights = Rights("shop", produce=("orders.*", "pay"), consume=("*",))
    assert [rights.may_produce(topic) for topic in ("orders.a", "orders", "pay", "pays")] == [
        True,
        False,
        True,
        False,
    ]
    assert rights.may_consume("anything")
    assert not Rights().may_consume("anything")


def test_settings_are_read_as_they_are_shown() -> None:
    values = {"retention_ms": 90_000, "pending_max": 1_000_000, "misfire": "drop"}
    assert texts(TOPIC_FIELDS, values) == {
        "retention_ms": "1m30s",
        "pending_max": "1,000,000",
        "misfire": "drop",
    }
    assert read(TOPIC_FIELDS, texts(TOPIC_FIELDS, values)) == values
    policy = {"attempts_max": 16, "back_off": (1_000, 5_000), "lease_ms": 30_000, "dead_letter_topic": "none"}
    assert read(POLICY_FIELDS, texts(POLICY_FIELDS, policy)) == policy
    assert read(CLUSTER_FIELDS, {"delay_levels_ms": "1s,5s"}) == {"delay_levels_ms": (1_000, 5_000)}
    assert read(TOPIC_FIELDS, {"retention_ms": "  ", "other": "x"}) == {}


def test_what_cannot_be_read_is_told_by_field() -> None:
    with pytest.raises(Misread) as caught:
        read(
            (*TOPIC_FIELDS, *POLICY_FIELDS),
            {"retention_ms": "soon", "pending_max": "-1", "back_off": "1s..", "misfire": "x"},
        )
    assert caught.value.faults.keys() == {"retention_ms", "pending_max", "back_off", "misfire"}
    assert "write 250ms" in caught.value.faults["retention_ms"]


def test_changes_are_told_field_by_field() -> None:
    before, after = {"attempts_max": 16, "lease_ms": 30_000}, {"attempts_max": 3, "delivery_per_s_max": 10}
    assert changes(POLICY_FIELDS, before, after) == [
        "Attempts, now 16, becomes 3.",
        "Lease, now 30s, is set no more.",
        "Delivery rate, now not set, becomes 10.",
    ]
    assert changes(POLICY_FIELDS, before, before) == []


def test_names_in_links_and_sizes() -> None:
    assert cells.path("topics", "a/b?c") == "/topics/a%2Fb%3Fc"
    assert cells.link("<x>", "topics", "<x>") == '<a href="/topics/%3Cx%3E">&lt;x&gt;</a>'
    assert [cells.size(n) for n in (0, 1_023, 1_024, 5 << 30)] == ["0 B", "1,023 B", "1.0 KiB", "5.0 GiB"]


def test_an_address_chooses_messages_and_says_what_of_it_cannot_be_read() -> None:
    choice = choice_of(
        {"tag": " a b ", "due_from": "2026-11-21T08:30:00Z", "state": "pending", "cursor": "c", "x": "y"}
    )
    assert choice.options == {
        "tags": ["a", "b"],
        "due_from_ms": 1_795_249_800_000,
        "states": ["pending"],
    }
    assert choice.address("d&") == "?tag=a+b&due_from=2026-11-21T08%3A30%3A00Z&state=pending&cursor=d%26"
    wrong = {"due_from": "soon", "due_to": "9" * 40, "state": "in_hand"}
    assert set(choice_of(wrong).faults) == {"due_from", "due_to", "group"}
    assert set(choice_of({"state": "lost", "due_to": "1" * 41}).faults) == {"state", "due_to"}
    nothing = choice_of({"key_prefix": " ", "due_to": "1970-01-01"})
    assert (nothing.options, nothing.faults) == ({}, {})


def test_of_a_retry_it_is_told_whose_it_is() -> None:
    listed = query_pb.ListedMessage(
        id="x", state=query_pb.LISTED_STATE_RETRYING, group="g", attempt=2, reason=2
    )
    assert notes_of(ListedMessage.of(listed, bodies=False)) == "delivery 2 to g, lease expired"
