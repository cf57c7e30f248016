"""Settings: what a client has asked for, with what the gateway decides."""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration

from tarry.gateway.rocketmq.call import Call
from tarry.gateway.rocketmq.codes import Refusal, status, status_of_error
from tarry.gateway.rocketmq.names import group_of
from tarry.gateway.rocketmq.policies import USUAL
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code

SETTINGS_BYTES_MAX: Final = 131_072
"""Answered whole, twice, and kept until then for each stream."""
PRODUCER_ATTEMPTS: Final = 3
PRODUCER_FIRST_MS: Final = 10
PRODUCER_MAX_MS: Final = 1_000
PRODUCER_FACTOR: Final = 2


def duration(milliseconds: int) -> Duration:
    """Return a duration in a message."""
    return Duration(seconds=milliseconds // 1_000, nanos=milliseconds % 1_000 * 1_000_000)


async def answer(call: Call, given: definition.Settings) -> service.TelemetryCommand:
    """Return the answer to a client's settings: the same, with what the server decides."""
    config = call.gateway.config
    if given.ByteSize() > SETTINGS_BYTES_MAX:
        text = f"settings of {given.ByteSize():,} bytes are too large, max is {SETTINGS_BYTES_MAX:,}"
        return service.TelemetryCommand(status=status(Code.PAYLOAD_TOO_LARGE, text))
    settings = definition.Settings()
    settings.CopyFrom(given)
    settings.metric.CopyFrom(definition.Metric())
    match given.WhichOneof("pub_sub"):
        case "publishing":
            settings.publishing.max_body_size = config.limits.body_bytes_max
            settings.publishing.validate_message_type = True
            settings.backoff_policy.CopyFrom(
                definition.RetryPolicy(
                    max_attempts=PRODUCER_ATTEMPTS,
                    exponential_backoff=definition.ExponentialBackoff(
                        initial=duration(PRODUCER_FIRST_MS),
                        max=duration(PRODUCER_MAX_MS),
                        multiplier=PRODUCER_FACTOR,
                    ),
                )
            )
        case "subscription":
            try:
                group = group_of(given.subscription.group)
                topics = [call.topic_of(each.topic) for each in given.subscription.subscriptions]
            except Refusal as refusal:
                return service.TelemetryCommand(status=status_of_error(refusal))
            policy = await call.gateway.policies.of(topics[0], group) if topics else USUAL
            settings.subscription.fifo = group in config.fifo_groups
            settings.subscription.receive_batch_size = config.limits.receive_messages_max
            settings.subscription.long_polling_timeout.CopyFrom(duration(config.limits.wait_ms_max))
            settings.backoff_policy.CopyFrom(
                definition.RetryPolicy(
                    max_attempts=policy.attempts_max,
                    customized_backoff=definition.CustomizedBackoff(next=map(duration, policy.back_off_ms)),
                )
            )
        case _:
            text = "settings are of a producer or of a consumer: these are of neither"
            return service.TelemetryCommand(status=status(Code.UNRECOGNIZED_CLIENT_TYPE, text))
    return service.TelemetryCommand(status=status(), settings=settings)
