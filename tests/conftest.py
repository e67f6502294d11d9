"""Hypothesis: quick and the same every time by default, long and by seed in `make nightly`."""

import os

from hypothesis import settings

settings.register_profile("quick", derandomize=True)
settings.register_profile("nightly", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
