"""``tarry list`` where a later page fails: what came before it is shown, with how to go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tarry.client.aio import ListedMessage, ListedState
from tarry.client.cli.list_messages import list_messages
from tarry.client.cli.matching import Filter
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output
from tarry.client.errors import Unavailable
from tarry.client.queries.listing import ListedPage

MESSAGE = ListedMessage(
    "the-id", 1, ListedState.PENDING, "", 0, "", None, None, False, (), (), "", "", {}, 0, None
)  # fmt: skip


class Cluster:
    """Gives so many pages of a message, then no answer."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._given = 0

    def query(self) -> Cluster:
        return self

    async def list_page(self, topic: str, **_: object) -> ListedPage:
        if self._given == self._pages:
            raise Unavailable("NO_LEADER", "nobody leads")
        self._given += 1
        return ListedPage((MESSAGE,), f"cursor-{self._given}", 0)


def listed(pages: int, output: Output) -> None:
    client: Any = Cluster(pages)
    with pytest.raises(Unavailable):
        asyncio.run(
            list_messages(client, "t", cursor="begun", matching=Filter(), cluster=OnCluster(output=output))
        )


@pytest.mark.parametrize("output", Output)
def test_what_came_before_a_page_that_fails_is_shown_with_how_to_go_on(
    output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    listed(2, output)
    shown = capsys.readouterr()
    assert shown.out.count("the-id") == 2
    assert "cursor-2" in shown.err


@pytest.mark.parametrize("output", Output)
def test_where_the_first_page_fails_nothing_is_shown(
    output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    listed(0, output)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "begun" not in shown.err
