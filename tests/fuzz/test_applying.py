"""Whatever comes through the API's checks, and whatever a leader may log, all replicas apply alike."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzz.plays import EdgePlay, Play, RawPlay

LONG = "FUZZ_SEED" in os.environ  # set by `make fuzz`
SETTINGS = settings(
    max_examples=60 if LONG else 10,
    stateful_step_count=60 if LONG else 25,
    derandomize=not LONG,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("play", [EdgePlay, RawPlay])
def test_replicas_apply_capture_recover_and_tell_whatever_may_be_in_the_log(play: type[Play]) -> None:
    run_state_machine_as_test(play, settings=SETTINGS)  # type: ignore[no-untyped-call]
