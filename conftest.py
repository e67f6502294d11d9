"""The profiles of hypothesis, the tests that only `make nightly` runs, and the folder with the published traces.

Linear algebra gets one thread: the matrices are small, and threads that spin while they wait for each other cost more
than the algebra. The variable has to be set before numpy is imported; processes that a test starts inherit it.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from profiles import NIGHTLY, PROFILE

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# On a busy machine any example may take long, and drawing it as well: neither is a failure.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("any speed"), derandomize=True)
settings.register_profile("nightly", settings.get_profile("any speed"), max_examples=300)
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `nightly` to `make nightly`."""
    long = [] if NIGHTLY else [item for item in items if item.get_closest_marker("nightly")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with the published traces; tests that need it are skipped without one."""
    folder = os.environ.get("HORAE_DATA")
    if not folder:
        pytest.skip("set HORAE_DATA to the folder with the published traces")
    return Path(folder)
