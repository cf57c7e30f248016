"""What RocketMQ's clients saw at gateways: each violation that is planted is found, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tarry.chaos.checks import gateway
from tarry.chaos.history import Answer, Cancelled, Delivered, Done, GatewayClients, Sent

TOPIC = "rocketmq"
SENT = Sent(10, TOPIC, 2_000, 1_000, 500, Answer.ACKNOWLEDGED, 1_010, 510, "M1", 2_000)
RECALLED = replace(SENT, token=20, id="M2")
UNKNOWN = replace(SENT, token=30, answer=Answer.UNKNOWN, id="", reason="no answer")
KEYED = [replace(SENT, token=40 + n, id=f"M{4 + n}", due_ms=3_000 + n * 1_000, key="k") for n in range(2)]
CAME = Delivered(10, TOPIC, "push", "M1", 0, 1, False, 2_001, 1_501)
DONE = Done("push", 10, 2, 2_010)


def keyed(number: int, received_ms: int) -> Delivered:
    """The delivery of a message of the key."""
    at = {"received_ms": received_ms, "received_mono_ms": received_ms - 500}
    return replace(CAME, token=40 + number, id=f"M{4 + number}", **at)  # type: ignore[arg-type]


def sound() -> GatewayClients:
    """Return one that failed once and one that may be a repetition, a recall, one without an answer, two in
    their order.
    """
    first = replace(CAME, token=30, id="M3")
    keys = [replace(one, acknowledged_due_ms=one.due_ms) for one in KEYED]
    return GatewayClients(
        sent=[SENT, RECALLED, UNKNOWN, *keys],
        cancelled=[Cancelled(20, 1_020)],
        delivered=[
            CAME,
            replace(CAME, attempt=2, received_ms=2_005, received_mono_ms=1_505),
            first,
            replace(first, maybe_duplicate=True, received_ms=2_600, received_mono_ms=2_100),
            keyed(0, 3_001),
            keyed(1, 4_001),
        ],
        done=[DONE],
        groups=[(TOPIC, "push")],
    )


def wrong(seen: GatewayClients) -> set[str]:
    return {name for name, found in gateway.found(seen).items() if found}


def test_nothing_is_wrong_with_a_sound_history() -> None:
    assert wrong(sound()) == set()


@pytest.mark.parametrize(
    ("delivery", "name"),
    [
        (replace(CAME, received_ms=1_999, attempt=2), "early"),
        (replace(CAME, received_mono_ms=1_400, attempt=2), "early"),
        (replace(CAME, token=20, id="M2"), "delivered after a cancel"),
        (replace(CAME, attempt=3), "attempted again though acknowledged"),
        (replace(CAME, attempt=3, received_ms=2_005), "attempted again though acknowledged"),
        (replace(CAME, received_ms=2_300, received_mono_ms=1_800), "repeated without a mark"),
        (replace(CAME, token=99, id="M9"), "delivered though never sent"),
        (replace(CAME, id="M7", attempt=2), "delivered under another id"),
    ],
)
def test_a_delivery_that_should_not_be_is_found(delivery: Delivered, name: str) -> None:
    seen = sound()
    seen.delivered.append(delivery)
    assert wrong(seen) == {name}


def test_a_message_that_a_group_never_got_is_lost() -> None:
    seen = sound()
    seen.groups.append((TOPIC, "simple"))
    assert wrong(seen) == {"lost"}


def test_a_message_without_an_answer_or_with_an_uncertain_recall_need_not_come() -> None:
    seen = sound()
    seen.delivered = [one for one in seen.delivered if one.token not in (10, 30)]
    seen.cancelled.append(Cancelled(10, 1_500, certain=False))
    assert wrong(seen) == set()


def test_a_message_that_overtakes_an_earlier_one_of_its_group_is_found() -> None:
    seen = sound()
    seen.delivered = [one for one in seen.delivered if one.token < 40] + [keyed(1, 4_001), keyed(0, 4_100)]
    assert wrong(seen) == {"out of the order of its key"}


def test_an_id_of_two_messages_is_found() -> None:
    seen = sound()
    seen.sent.append(replace(SENT, token=50))
    seen.cancelled.append(Cancelled(50, 1_020))
    assert wrong(seen) == {"ids given twice"}


def test_an_attempt_that_comes_after_the_acknowledgement_of_a_later_one_was_on_its_way() -> None:
    seen = sound()
    seen.done.append(Done("push", 10, 3, 60_000))
    seen.delivered.append(replace(CAME, attempt=2, received_ms=90_000))
    assert wrong(seen) == set()


def test_an_attempt_that_comes_again_is_within_its_bound_only_where_the_first_delivery_lay_in_a_window() -> (
    None
):
    seen = sound()  # the message 30 came at 1,501 and at 2,100 as its first attempt
    again = seen.delivered[3]
    assert gateway.repeated(seen) == gateway.repeated(seen, [(1_502, 2_100)]) == (again,)
    assert gateway.repeated(seen, [(1_400, 1_501)]) == ()
    seen.delivered.reverse()  # programs tell what they see side by side
    assert gateway.repeated(seen) == (again,)
