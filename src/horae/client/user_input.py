"""Input of the caller as a model of the API: the first problem in it is one clear error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from horae.model.errors import InputError
from horae.traces.yaml_files import first_complaint

Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], fields: Mapping[str, object]) -> Model:
    """The model with these fields; fields that are None count as not given."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        details, problem, remedy = first_complaint(error)
        first, *rest = details["loc"] or ("",)
        parts = [first, *(part for part in rest if isinstance(part, int))]  # pydantic also names the types of a union
        raise InputError(problem, field=".".join(map(str, parts)), remedy=remedy) from None
