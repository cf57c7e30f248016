"""Who is refused as a node is told why; the log is told now and then, and never at the caller's length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from tarry.node.config import Tls
from tarry.node.edge.peer_auth import CLAIMED_CHARS_MAX, peer_gate

CALLS = 50

TLS = Tls.model_construct(authority=Path("authority"))  # never read


class Ended(Exception):
    pass


class Call:
    """One with the certificate of a client."""

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_common_name": [b"shop"]}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def abort(self, code: grpc.StatusCode, text: str, _: object) -> None:
        assert len(text) < 500
        raise Ended(code, text)


@pytest.mark.parametrize(("tls", "says"), [(TLS, "the certificate is of shop"), (None, "no node of this")])
async def test_many_calls_with_long_names_are_one_short_line_of_the_log(tls: Tls | None, says: str) -> None:
    gate = peer_gate(tls, lambda _: False)
    call: Any = Call()
    with capture_logs() as logs:
        for _ in range(CALLS):
            with pytest.raises(Ended, match=says):
                await gate.check(call, "n" * 1_000_000)
    (line,) = logs
    assert line["claimed"] == "n" * CLAIMED_CHARS_MAX
