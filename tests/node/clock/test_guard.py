"""Transfer of leadership by a leader with a wrong clock."""

from __future__ import annotations

from tarry.node.clock.guard import trusted
from tarry.replication.status import PeerStatus


def peer(
    offset_ms: float | None, *, match: int = 5, connected: bool = True, voting: bool = True
) -> PeerStatus:
    return PeerStatus("127.0.0.1:1", connected, voting, match, offset_ms, 1.0, 1.0, 1.0)


def test_leadership_goes_to_the_member_that_has_most_of_those_whose_clock_is_right() -> None:
    peers = {"n2": peer(-600_010), "n3": peer(-599_990, match=9), "n4": peer(0, match=20)}
    assert trusted(peers, offset_ms=600_000, limit_ms=250) == "n3"  # n4 is as wrong as this node


def test_nobody_is_trusted_whose_clock_is_unknown_who_is_away_or_has_no_vote() -> None:
    peers = {"n2": peer(None), "n3": peer(-1_000, connected=False), "n4": peer(-1_000, voting=False)}
    assert trusted(peers, offset_ms=1_000, limit_ms=250) is None


def test_the_limit_itself_is_still_right() -> None:
    assert trusted({"n2": peer(-750)}, offset_ms=1_000, limit_ms=250) == "n2"
    assert trusted({"n2": peer(-749)}, offset_ms=1_000, limit_ms=250) is None
