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

from horae.service import models, whatif_models
from horae.service.api.app import create_app
from horae.service.api.examples import EXAMPLES as OF_MODELS
from horae.service.store import schema

EXAMPLES = 3000 if NIGHTLY else 100  # over all routes
NAMES = ("olga", "ann")
# Of these the example leaves out fields that have a default.
WITH_OPTIONAL_FIELDS = {"JobSpec", "JobView", "Page", "Problem", "Progress", "TenantChange", "WhatIfRequest", "Why"}


@pytest.fixture
def drawn(tmp_path: Any) -> Iterator[tuple[World, Any]]:
    world = World(tmp_path, answer_seconds=0.0, loop_seconds=0.2)
    for number in range(1, 4):
        world.add_job(str(number))
    world.insert(schema.counters, name="jobs", value=3)
    moment = {"median": 9.0, "low": 5.0, "high": "inf"}
    asked = {"asked_at": 1.0, "starts": moment, "ends": moment, "draws": 2, "cut_off": 0}
    with FakeLoop(world) as loop, served(world, is_stopping=True) as url:
        loop.answers |= {"eta": {"eta": asked}, "plan": {"plan": asked}}
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


def test_every_model_has_a_valid_example(world: World) -> None:
    schemas = create_app(world.context).openapi()["components"]["schemas"]
    ours = [name for name in schemas if name not in ("HTTPValidationError", "ValidationError")]
    assert set(ours) <= set(OF_MODELS), "a model without an example"
    for name, example in OF_MODELS.items():
        model = getattr(models, name, None) or getattr(whatif_models, name)
        assert model.model_validate(example).model_dump(mode="json", exclude_unset=True) == example, name
        assert set(model.model_fields) <= set(example) or name in WITH_OPTIONAL_FIELDS, name
    assert all(schemas[name]["examples"] == [OF_MODELS[name]] for name in ours)
