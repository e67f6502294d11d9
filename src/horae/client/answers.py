"""Answers of the service as models, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from horae.client.connection import Connection
from horae.service.models import JobSpec, JobView

Model = TypeVar("Model", bound=BaseModel)


class Answers:
    """What a connection gives, checked; an answer that does not fit its model is a `ServiceError`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def one(self, model: type[Model], answer: object) -> Model:
        """A plain value, or the text of one, as a model."""
        try:
            if model is JobView:
                return model.model_validate(_known(answer))
            return model.model_validate_json(answer) if isinstance(answer, str) else model.model_validate(answer)
        except ValidationError:
            raise self._connection.unreadable() from None

    def several(self, model: type[Model], answer: object) -> list[Model]:
        return [self.one(model, each) for each in _items(answer)]

    def ids(self, answer: object) -> list[str]:
        """The ids of the jobs that an answer names or contains."""
        named = answer.get("ids") if isinstance(answer, dict) else None
        if isinstance(named, list) and all(isinstance(each, str) for each in named):
            return list(named)
        return [job.id for job in self.several(JobView, answer)]

    def pages(self, model: type[Model], path: str, params: Mapping[str, object] | None = None) -> Iterator[Model]:
        """The items of all pages of a list, each page asked for when it is needed."""
        cursor, seen = None, set[str]()
        while True:
            answer = self._connection.get(path, {**(params or {}), "cursor": cursor})
            yield from self.several(model, answer)
            cursor = answer.get("next") if isinstance(answer, dict) else None
            if not isinstance(cursor, str) or cursor in seen:
                return
            seen.add(cursor)


def _items(answer: object) -> list[Any]:
    """The items of a page; one item is a page of its own."""
    if isinstance(answer, dict) and isinstance(answer.get("items"), list):
        return list(answer["items"])
    return list(answer) if isinstance(answer, list) else [answer]


def _known(answer: object) -> object:
    """A job without fields of its job file that a newer service has, and without infinities, which JSON has not."""
    if not isinstance(answer, dict) or not isinstance(answer.get("spec"), dict):
        return answer
    known = {
        name: value for name, value in answer["spec"].items() if name in JobSpec.model_fields and value is not None
    }
    return {**answer, "spec": known}
