"""How far an upgrade is, by what nodes answer."""

from __future__ import annotations

from typing import Any

from tarry.client.errors import TarryError, Unavailable
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.client.operators.upgrade_status import upgrade_status
from tarry.proto.tarry_operator_pb2 import ClusterStatusResponse, Member

AWAY = Unavailable("UNREACHABLE", "away")
MEMBERS = [Member(node=f"n{n}", address=f"{n}:1") for n in (1, 2, 3)]


def answer(node: int, level_max: int, **more: Any) -> ClusterStatus:
    version = f"0.{level_max + 1}.0"
    more = {"members": MEMBERS, "level": int(level_max > 0), "version": version, **more}
    return ClusterStatus.of(ClusterStatusResponse(node=f"n{node}", level_max=level_max, **more))


def told(*answers: ClusterStatus | TarryError) -> Any:
    found = upgrade_status({f"{n}:1": said for n, said in enumerate(answers, 1)})
    assert found is not None
    return found


def test_before_an_upgrade_nothing_is_to_be_finished() -> None:
    found = told(answer(1, 1, lease=True), answer(2, 1), answer(3, 1))
    assert (found.level, found.next_level, found.missing) == (1, 1, {})


def test_a_leader_of_a_version_without_levels_does_not_hide_who_is_upgraded() -> None:
    found = told(answer(1, 0, lease=True, version="0.2.0"), answer(2, 2), answer(3, 0, version="0.2.0"))
    assert (found.level, found.next_level) == (1, 2)
    assert found.missing == dict.fromkeys(("n1", "n3"), "0.2.0 applies level 1 at most: upgrade it")
    assert [member.level_max for member in found.members] == [1, 2, 1]


def test_who_does_not_answer_is_missing_with_what_the_leader_has_heard_of_it() -> None:
    heard = [*MEMBERS[:2], Member(node="n3", address="3:1", version="0.3.0", level_max=2)]
    found = told(answer(1, 2, lease=True, members=heard), answer(2, 2), AWAY)
    assert (found.next_level, found.missing) == (2, {"n3": "it does not answer"})
    assert (found.members[2].version, found.members[2].level_max) == ("0.3.0", 2)


def test_an_upgrade_that_all_can_finish_waits_for_nobody_and_one_that_is_finished_neither() -> None:
    ready = told(answer(1, 2, lease=True, upgrade_finish="manual"), answer(2, 2), answer(3, 2))
    assert (ready.level, ready.next_level, ready.missing, ready.finish) == (1, 2, {}, "manual")
    done = told(answer(1, 2, level=2, lease=True), answer(2, 2, level=2), answer(3, 2, level=2))
    assert (done.level, done.next_level, done.missing) == (2, 2, {})


def test_a_member_below_the_level_is_named_though_none_can_apply_more() -> None:
    found = told(answer(1, 2, level=2, lease=True), answer(2, 2, level=2), answer(3, 0, version="0.2.0"))
    assert (found.level, found.next_level) == (2, 2)
    assert found.missing == {"n3": "0.2.0 applies level 1 at most: upgrade it"}


def test_no_answer_is_no_status() -> None:
    assert upgrade_status({"1:1": AWAY}) is None
