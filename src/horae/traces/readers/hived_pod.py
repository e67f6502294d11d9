"""Reads the annotation by which a pod requests GPUs from HiveD, as a gang.

Field names of older versions are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import yaml
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from horae.model.errors import InputError, JobError
from horae.traces.yaml_files import load

ANNOTATION = "hivedscheduler.microsoft.com/pod-scheduling-spec"

OPPORTUNISTIC = -1  # a priority: preemptible, on GPUs that no tenant uses
PRIORITY_MAX = 1000


@dataclass(frozen=True)
class HivedGang:
    """A gang, scheduled all or nothing: a number of members, each on GPUs of one node."""

    name: str
    tenant: str
    members: tuple[int, ...]  # GPUs of each
    priority: int = 0
    accelerator: str = ""  # "": any GPU type, but the same for all members
    pin: str = ""  # the pinned cell that it wants; "": none
    lazy: bool = False  # may lose its guarantee and keep running, rather than be stopped at once


Count = Annotated[int, Field(gt=0, strict=True)]


def _old(name: str, *names: str) -> AliasChoices:
    return AliasChoices(name, *names)


class Member(BaseModel):
    podNumber: Count  # noqa: N815  (names as in the annotation)
    leafCellNumber: Count = Field(validation_alias=_old("leafCellNumber", "gpuNumber"))  # noqa: N815


class AffinityGroup(BaseModel):
    name: Annotated[str, Field(min_length=1)]
    members: Annotated[list[Member], Field(min_length=1)]


def _without_nulls(given: object) -> object:
    """A field without a value has its default, as in HiveD."""
    return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given


class PodSpec(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    _defaults = model_validator(mode="before")(_without_nulls)

    virtualCluster: Annotated[str, Field(min_length=1)]  # noqa: N815
    priority: Annotated[int, Field(ge=OPPORTUNISTIC, le=PRIORITY_MAX, strict=True)] = 0
    leafCellNumber: Count = Field(validation_alias=_old("leafCellNumber", "gpuNumber"))  # noqa: N815
    leafCellType: str = Field("", validation_alias=_old("leafCellType", "gpuType"))  # noqa: N815
    pinnedCellId: str = Field("", validation_alias=_old("pinnedCellId", "reservationId"))  # noqa: N815
    lazyPreemptionEnable: bool = False  # noqa: N815
    ignoreK8sSuggestedNodes: bool = True  # noqa: N815
    affinityGroup: AffinityGroup | None = None  # noqa: N815


class Pod(NamedTuple):
    """One member of a gang."""

    gang: HivedGang
    gpus: int
    heeds_suggestions: bool  # new cells may only be bound on the nodes that Kubernetes suggests


def read_pod(name: str, annotation: str) -> Pod:
    """A pod's gang, from the text of its annotation; a pod without a group is a gang of one."""
    try:
        spec = PodSpec.model_validate(load(annotation))
    except InputError as error:
        raise JobError(error.problem, file=f"pod {name}", field=ANNOTATION, remedy=error.remedy) from None
    except (yaml.YAMLError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise JobError(problem, file=f"pod {name}", field=ANNOTATION, remedy="write YAML") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise JobError(
            f"{field}: {first['msg']}" if field else first["msg"],
            file=f"pod {name}",
            field=ANNOTATION,
            remedy="fix the annotation",
        ) from None
    group = spec.affinityGroup
    if group is None:
        members: tuple[int, ...] = (spec.leafCellNumber,)
    else:
        members = tuple(each.leafCellNumber for each in group.members for _ in range(each.podNumber))
    if spec.leafCellNumber not in members:
        raise JobError(
            f"no member of group {group.name if group else name!r} has {spec.leafCellNumber} GPUs, as this pod has",
            file=f"pod {name}",
            field="affinityGroup.members",
            remedy="list the pod itself among the members",
        )
    gang = HivedGang(
        name=group.name if group else name,
        tenant=spec.virtualCluster,
        members=members,
        priority=spec.priority,
        accelerator=spec.leafCellType,
        pin=spec.pinnedCellId,
        lazy=spec.lazyPreemptionEnable,
    )
    return Pod(gang, spec.leafCellNumber, not spec.ignoreK8sSuggestedNodes)
