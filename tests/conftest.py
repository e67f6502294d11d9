"""Hypothesis: quick and the same every time, or long and by seed in `make nightly`. And the published traces."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("quick", derandomize=True)
settings.register_profile("nightly", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with the published traces; without one, what needs it is skipped."""
    folder = os.environ.get("HORAE_DATA")
    if not folder:
        pytest.skip("set HORAE_DATA to the folder with the published traces")
    return Path(folder)
