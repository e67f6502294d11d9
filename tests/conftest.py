"""Hypothesis: quick by default, long in `make nightly`."""

import os

from hypothesis import settings

settings.register_profile("nightly", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
