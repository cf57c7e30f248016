"""What is in the hands of consumers that never come back to say so, over a change of leaders."""

from __future__ import annotations

import pytest

from tarry.node.delivery import delivery
from tests.node.group_in_process import SETTINGS, Group
from tests.node.group_play import labels, pass_ms, play, poll


def test_a_caller_s_lease_goes_on_under_the_next_leaders_though_all_streams_are_back() -> None:
    async def steps(group: Group) -> None:
        group.join("a", credit=1)
        group.schedule("k", 0)
        await pass_ms(group, 1)
        group.schedule("", 0)
        group.schedule("l", 0)
        group.release()
        for name in "pq":
            poll(group, name, lease_ms=20 * SETTINGS.lease_ms, credit=1)
        assert labels(group) == ["m0", "m1", "m2"]
        for _ in range(2):
            await group.fail_over(0, group.cursors())
            group.join("a", credit=9)
            group.settle_first("a", 1, nack=False)
            await group.settle()
            await group.commit()
            await pass_ms(group, 5 * SETTINGS.lease_ms)
        assert labels(group) == ["m0", "m1", "m2"]
        assert group.settle_first("p", 1, nack=False) == ["m1"]
        await group.settle()
        await group.commit()
        assert group.places()["m1"] == ["done"]
        await pass_ms(group, 20 * SETTINGS.lease_ms)
        await group.commit()
        await pass_ms(group, 50)
        assert [(one.label, one.attempt) for one in group.given[3:]] == [("m2", 2)]

    play(steps)


def test_callers_with_more_in_hand_than_a_heartbeat_names_are_waited_for_as_streams_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "LEASES_NAMED_MAX", 1)

    async def steps(group: Group) -> None:
        for _ in range(2):
            group.schedule("", 0)
        group.release()
        for name in "pq":
            poll(group, name, lease_ms=20 * SETTINGS.lease_ms, credit=1)
        assert len(group.given) == 2
        (main, _) = group.cursors()
        assert [len(lease.offset) // 8 for lease in main.leases] == [1]
        assert len(main.consumers) == 1
        await group.fail_over(0, group.cursors())
        group.join("a", credit=9)
        await pass_ms(group, SETTINGS.lease_ms - 100)
        assert len(group.given) == 2
        await pass_ms(group, 200)
        assert len(group.given) == 3

    play(steps)
