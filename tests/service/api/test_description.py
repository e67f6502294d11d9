"""The API's own description, and requests drawn from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from profiles import NIGHTLY
from schemathesis.checks import not_a_server_error
from service.api.harness import FakeLoop, World, served

from horae.service.api.app import create_app
from horae.service.store import schema

EXAMPLES = 3000 if NIGHTLY else 100  # over all routes
NAMES = ("olga", "ann")


@pytest.fixture
def drawn(tmp_path: Any) -> Iterator[tuple[World, Any]]:
    world = World(tmp_path, answer_seconds=0.0, loop_seconds=0.2)
    for number in range(1, 4):
        world.add_job(str(number))
    world.insert(schema.counters, name="jobs", value=3)
    with FakeLoop(world), served(world, is_stopping=True) as url:
        yield world, schemathesis.openapi.from_url(f"{url}/openapi.json")


def test_no_request_is_an_internal_error(drawn: tuple[World, Any]) -> None:
    world, description = drawn
    found = [result.ok() for result in description.get_all_operations()]
    cases = st.one_of([operation.as_strategy() for operation in found])

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=cases, name=st.sampled_from(NAMES))
    def ask(case: Any, name: str) -> None:
        case.call_and_validate(headers=world.headers(name), checks=[not_a_server_error])

    ask()


def test_every_route_is_described(world: World) -> None:
    """Each operation has a name and a description of what it gives, and errors are problems."""
    description = create_app(world.context).openapi()
    for path, item in description["paths"].items():
        for method, operation in item.items():
            assert operation["operationId"], (method, path)
            assert "default" in operation["responses"], (method, path)
            assert any(status.startswith("2") for status in operation["responses"]), (method, path)
