"""Access: the client of the cluster that stands for whoever calls.

With access keys in the gateway's file each call is signed with one of them, and the key stands for a token of
the cluster, whose rights the nodes check. The signature is of the call's date alone, and clients write local
time there, so it can be sent again by whoever has seen it: TLS keeps it from being seen.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from dataclasses import replace
from typing import Final, TypeAlias

from tarry.client.settings import Settings
from tarry.gateway.cluster_access import ClusterAccess
from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Config
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code

BATCH_BYTES_MAX: Final = 64 << 20
"""More than a request can have: a batch is one request to the cluster, taken whole or not at all."""
_SIGNED: Final = re.compile(
    r"MQv2-HMAC-SHA1 +Credential=([^,/]*)(?:/[^,]*)?, *SignedHeaders=x-mq-date-time, *"
    r"Signature=([0-9A-Fa-f]*)"
)


Caller: TypeAlias = tuple[ClusterAccess, str]
"""A client: its access, and the id that it gives itself, which a client with another token may give, too."""


class Accesses:
    """The access of each key."""

    def __init__(self, settings: Settings, config: Config) -> None:
        self._settings = replace(
            settings,
            token=None,
            batch_messages_max=config.limits.batch_messages_max,
            batch_bytes_max=BATCH_BYTES_MAX,
            gather_in_flight_max=2,  # larger requests, and one that hangs holds up no other
        )
        self._keys = {key.access_key: key for key in config.key}
        self._of_token: dict[str | None, ClusterAccess] = {}

    def of(self, authorization: str, date_time: str) -> ClusterAccess:
        """Return the access of a call by its headers. Raises Refusal."""
        if not self._keys:
            return self._access(None)
        found = _SIGNED.fullmatch(authorization)
        name, signature = found.groups() if found else ("", "")
        key = self._keys.get(name)
        if key is None:
            text = f"access key {name[:80]!r} is not known here" if name else "credentials are needed"
            raise Refusal(Code.UNAUTHORIZED, text)
        if key.access_key:
            expected = hmac.digest(key.secret_key.encode(), date_time.encode(), "sha1").hex()
            if not hmac.compare_digest(expected, signature.lower()):
                raise Refusal(Code.UNAUTHORIZED, "the signature is not that of the access key's secret")
        return self._access(key.token)

    async def close(self) -> None:
        """Close all clients."""
        await asyncio.gather(*(access.client.close() for access in self._of_token.values()))

    def _access(self, token: str | None) -> ClusterAccess:
        if token not in self._of_token:
            self._of_token[token] = ClusterAccess(replace(self._settings, token=token))
        return self._of_token[token]
