"""Errors: every reason becomes one class that says what to do."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from tarry.client import errors
from tarry.client.cluster.calls import pause_s
from tarry.client.errors import error_of_call, error_of_status
from tarry.proto.reasons import Reason


def status(
    code: grpc.StatusCode,
    reason: str | None,
    facts: dict[str, str] | None = None,
    retry_ms: int | None = None,
) -> status_pb2.Status:
    built = status_pb2.Status(code=code.value[0], message="words")
    if reason:
        info = Any()
        info.Pack(error_details_pb2.ErrorInfo(domain="tarry", reason=reason, metadata=facts or {}))
        built.details.append(info)
    if retry_ms is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(retry_ms)
        packed = Any()
        packed.Pack(retry)
        built.details.append(packed)
    return built


def failed_call(
    code: grpc.StatusCode, details: str, rich: status_pb2.Status | None = None
) -> aio.AioRpcError:
    trailing = [("grpc-status-details-bin", rich.SerializeToString())] if rich else []
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(*trailing), details)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_of_the_server_has_a_class_of_its_own_family(reason: Reason) -> None:
    assert reason.value in errors.CLASS_OF_REASON


def test_an_error_carries_reason_text_facts_and_the_time_to_wait() -> None:
    error = error_of_status(
        status(grpc.StatusCode.UNAVAILABLE, "NOT_LEADER", {"leader": "127.0.0.1:9"}, retry_ms=250)
    )
    assert isinstance(error, errors.Unavailable)
    assert (error.reason, error.text, error.facts, error.retry_ms) == (
        "NOT_LEADER",
        "words",
        {"leader": "127.0.0.1:9"},
        250,
    )


def test_details_in_the_trailing_metadata_win_over_the_bare_code() -> None:
    rich = status(grpc.StatusCode.INVALID_ARGUMENT, "DUE_TOO_FAR")
    error = error_of_call(failed_call(grpc.StatusCode.INVALID_ARGUMENT, "words", rich))
    assert type(error) is errors.InvalidTime


def test_a_reason_that_this_client_does_not_know_falls_back_to_the_code() -> None:
    error = error_of_status(status(grpc.StatusCode.INVALID_ARGUMENT, "INVENTED_LATER"))
    assert type(error) is errors.Refused
    assert error.reason == "INVENTED_LATER"


@pytest.mark.parametrize(
    ("code", "details", "family"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; …", errors.Unavailable),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", errors.OutcomeUnknown),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", errors.OutcomeUnknown),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full", errors.Overloaded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Sent message larger than max (9 vs. 4)", errors.TooLarge),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", errors.Refused),
        (grpc.StatusCode.UNAUTHENTICATED, "no", errors.NotPermitted),
    ],
)
def test_a_status_without_details_says_only_whether_it_may_have_been_done(
    code: grpc.StatusCode, details: str, family: type[errors.TarryError]
) -> None:
    assert type(error_of_call(failed_call(code, details))) is family


def test_a_call_that_the_nodes_version_lacks_says_that_it_has_to_be_upgraded() -> None:
    error = error_of_call(failed_call(grpc.StatusCode.UNIMPLEMENTED, "Method not found!"))
    assert (error.reason, "tarry upgrade status" in error.text) == ("UNIMPLEMENTED", True)


def test_a_conflict_of_idempotency_keys_names_the_message_that_has_the_key() -> None:
    facts = {"position": "0", "id": "the-first"}
    error = error_of_status(status(grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_CONFLICT", facts))
    assert isinstance(error, errors.IdempotencyConflict)
    assert isinstance(error, errors.Refused)
    assert error.id == "the-first"


def test_a_redirect_is_followed_at_once_but_not_for_ever() -> None:
    redirect = errors.Unavailable("NOT_LEADER", "ask there", {"leader": "127.0.0.1:9"})
    assert [pause_s(redirect, attempt, 50) for attempt in (1, 2, 3)] == [0.0, 0.0, 0.0]
    assert any(pause_s(redirect, 4, 50) > 0 for _ in range(10))


def test_the_server_s_own_figure_is_waited_for_and_up_to_half_more() -> None:
    busy = errors.Overloaded("OVERLOADED", "later", {}, 200)
    pauses = [pause_s(busy, 1, 50) for _ in range(200)]
    assert min(pauses) >= 0.2
    assert max(pauses) <= 0.3
    assert len(set(pauses)) > 100  # jitter, or all clients come back together


def test_pauses_grow_and_are_bounded() -> None:
    unknown = errors.OutcomeUnknown("UNAVAILABLE", "gone")
    assert max(pause_s(unknown, 1, 50) for _ in range(200)) <= 0.1
    late = [pause_s(unknown, 30, 50) for _ in range(500)]
    assert 0.5 < max(late) <= 1.0
