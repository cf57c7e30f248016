"""Requests as they come: taken within a time, and parsed where they are of a size.

A call has its slot, and its client is known, before anything of its request is read.
"""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from tarry.gateway.rocketmq.call import Call, Context, within
from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code

BYTES_MAX: Final = 262_144
"""Of a request without bodies; the largest are a hundred handles, or a condition of 65,536 characters."""
Request = TypeVar("Request", bound=Message)


async def request_of(call: Call, context: Context, of: type[Request], bytes_max: int | None) -> Request:
    """Return the one request of a call, which has to come in time. Raises Refusal."""
    try:
        request = await within(context.read(), call.budget_s)
    except TimeoutError:
        raise Refusal(Code.REQUEST_TIMEOUT, "the request has not come in time") from None
    if not isinstance(request, bytes):  # gRPC's EOF
        raise Refusal(Code.BAD_REQUEST, "the call has no request")
    return parsed(of, request, bytes_max)


def parsed(of: type[Request], request: bytes, bytes_max: int | None = BYTES_MAX) -> Request:
    """Return a request; ``bytes_max`` None: of any size that gRPC takes. Raises Refusal."""
    if bytes_max is not None and len(request) > bytes_max:
        text = f"the request has {len(request):,} bytes, more than {bytes_max:,}"
        raise Refusal(Code.PAYLOAD_TOO_LARGE, text)
    try:
        return of.FromString(request)
    except DecodeError:
        raise Refusal(Code.BAD_REQUEST, f"the request is no {of.__name__}") from None
