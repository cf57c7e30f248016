"""A message's page: when it was stored and born, where that is known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tarry.client.results import MessageState, StoredMessage
from tarry.console.rendering import _templates

MESSAGE = StoredMessage("an-id", "orders", 3_000, MessageState.PENDING, b"", (), (), "", "", {})


def page(message: StoredMessage) -> str:
    rights = SimpleNamespace(operate=True, token="")
    return _templates.get_template("message.html").render(
        here="/message",
        query="",
        form_token="",
        signed_in=False,
        rights=rights,
        navigation=[],
        message=message,
        look=None,
        readable=False,
        groups=None,
        group_columns=(),
        form="",
        forms=(),
        body="",
        cut=False,
        now_ms=0,
        pending=True,
        may_cancel=False,
        may_send=False,
    )


@pytest.mark.parametrize(
    ("born_ms", "stored_ms"), [(None, None), (None, 2_000), (1_000, 2_000), (253_402_300_799_999, 2_000)]
)
def test_a_message_has_the_times_that_are_known(born_ms: int | None, stored_ms: int | None) -> None:
    text = page(replace(MESSAGE, born_ms=born_ms, stored_ms=stored_ms))
    assert (f'data-ms="{stored_ms}"' in text) == ("stored <time" in text) == (stored_ms is not None)
    assert (f'data-ms="{born_ms}"' in text) == ("by its producer's clock" in text) == (born_ms is not None)
    assert 'data-ms="3000"' in text
    assert "None" not in text
