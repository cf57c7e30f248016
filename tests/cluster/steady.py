"""Settings for clusters of which a test wants that nothing moves their leadership but itself."""

# a machine that stands still for half a second, as busy ones do, does not end a leadership
STEADY = {"election_min_ms": 1_000, "election_max_ms": 2_000, "fallback_ms": 900}
