"""What all tests share: properties have no deadline, for a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
