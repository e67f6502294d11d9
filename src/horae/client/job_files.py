"""Job files: one job, or a list of jobs, in YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, ValidationError

from horae.client.user_input import checked
from horae.model.errors import InputError
from horae.service.models import JobSpec
from horae.traces.yaml_files import complain, read_tree

Submittable: TypeAlias = JobSpec | Mapping[str, object] | str | Path


def specs_of(jobs: Submittable | Sequence[Submittable]) -> list[JobSpec]:
    """What is to be submitted as specifications: from files, from mappings, or as they are."""
    if isinstance(jobs, JobSpec):
        return [jobs]
    if isinstance(jobs, Mapping):
        return [checked(JobSpec, jobs)]
    if isinstance(jobs, str | Path):
        return read_job_file(Path(jobs))
    return [spec for each in jobs for spec in specs_of(each)]


def read_job_file(path: Path) -> list[JobSpec]:
    """The jobs of a file. A working folder counts from the folder of the file, and is that folder if none is named."""
    source = Path("/dev/stdin") if str(path) == "-" else path
    tree, plain = read_tree(source, "run")
    items = plain if isinstance(plain, list) else [plain]
    if not items:
        raise InputError("has no jobs", file=str(path), remedy="give at least one")
    folder = Path.cwd() if source is not path else path.parent.resolve()
    specs = []
    for index, item in enumerate(items):
        try:
            spec = JobSpec.model_validate(item)
        except ValidationError as error:
            inside = (index,) if isinstance(plain, list) else ()
            raise complain(error, path, tree, inside) from None
        specs.append(spec.model_copy(update={"workdir": str(folder / Path(spec.workdir).expanduser())}))
    return specs


def changed(spec: JobSpec, changes: Mapping[str, object]) -> JobSpec:
    """The specification with other values for some fields, checked anew."""
    return checked(JobSpec, {**to_send(spec), **changes})


def to_send(spec: BaseModel) -> dict[str, object]:
    """The fields that were given: the service has its own defaults, and JSON has no infinity."""
    return spec.model_dump(mode="json", exclude_unset=True)
