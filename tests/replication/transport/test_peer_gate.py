"""Who may speak for a node: one who proves its name, if the cluster has, or may have, a node of that name."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tarry.replication.transport.interface import PeerGate


class Refused(Exception):
    pass


async def refuse(_: object, claimed: str) -> NoReturn:
    raise Refused(f"not certified: {claimed}")


async def refuse_stranger(_: object, claimed: str) -> NoReturn:
    raise Refused(f"unknown: {claimed}")


GATE = PeerGate(lambda context: context, lambda node: node in ("n1", "n2"), refuse, refuse_stranger)
"""The context is what the caller has proven."""


async def test_a_node_speaks_for_itself_and_where_nobody_is_asked_for_any() -> None:
    for proven in ({"n1"}, {"n1", "localhost"}, None):
        await GATE.check(proven, "n1")
    await GATE.check_name({"n9"}, "n9")


async def test_nobody_speaks_for_another_and_no_stranger_speaks() -> None:
    for check in (GATE.check, GATE.check_name):
        with pytest.raises(Refused, match="not certified: n1"):
            await check({"n2"}, "n1")
        with pytest.raises(Refused, match="not certified: n1"):
            await check(set(), "n1")
    for proven in ({"n9"}, None):
        with pytest.raises(Refused, match="unknown: n9"):
            await GATE.check(proven, "n9")
