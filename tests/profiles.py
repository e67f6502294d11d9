"""The two ways to run the tests: `make test` is short and the same every time, `make nightly` is long and seeded.

HYPOTHESIS_PROFILE chooses between them. A test that is slow and random says with `examples` how many examples it gets
in each; a long deterministic test that has a shorter version is marked `nightly`, and `make test` deselects it.
"""

from __future__ import annotations

import os

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
NIGHTLY = PROFILE == "nightly"


def examples(quick: int, nightly: int) -> settings:
    """The number of examples that hypothesis tries in `make test` and in `make nightly`."""
    return settings(max_examples=nightly if NIGHTLY else quick)
