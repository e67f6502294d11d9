"""The annotation by which a pod asks HiveD for GPUs."""

from __future__ import annotations

import pytest

from horae.model.errors import JobError
from horae.traces.readers.hived_pod import ANNOTATION, HivedGang, read_pod

WHOLE = """
virtualCluster: vc1
priority: 7
pinnedCellId: P1
leafCellType: V100
leafCellNumber: 4
lazyPreemptionEnable: true
ignoreK8sSuggestedNodes: false
affinityGroup:
  name: train
  members:
  - {podNumber: 2, leafCellNumber: 4}
  - {podNumber: 1, leafCellNumber: 1}
"""


def test_a_pod_is_one_member_of_its_gang() -> None:
    pod = read_pod("p", WHOLE)
    assert pod.gang == HivedGang("train", "vc1", (4, 4, 1), 7, "V100", "P1", lazy=True)
    assert (pod.gpus, pod.heeds_suggestions) == (4, True)


def test_a_pod_without_a_group_is_a_gang_of_its_own_with_defaults() -> None:
    pod = read_pod("p", "{virtualCluster: vc1, leafCellNumber: 2}")
    assert pod.gang == HivedGang("p", "vc1", (2,), 0, "", "", lazy=False)
    assert not pod.heeds_suggestions


def test_names_of_older_versions_are_understood() -> None:
    text = """
    {virtualCluster: vc1, gpuType: K80, gpuNumber: 1, reservationId: P1,
     affinityGroup: {name: g, members: [{podNumber: 1, gpuNumber: 1}]}}
    """
    assert read_pod("p", text).gang == HivedGang("g", "vc1", (1,), 0, "K80", "P1")


@pytest.mark.parametrize(
    ("text", "complaint"),
    {
        "no tenant": ("{leafCellNumber: 1}", "virtualCluster: Field required"),
        "no GPUs": ("{virtualCluster: v, leafCellNumber: 0}", "leafCellNumber: Input should be greater than 0"),
        "too high a priority": (
            "{virtualCluster: v, leafCellNumber: 1, priority: 1001}",
            "priority: Input should be less than or equal to 1000",
        ),
        "a group of nobody": (
            "{virtualCluster: v, leafCellNumber: 1, affinityGroup: {name: g, members: []}}",
            "affinityGroup.members: List should have at least 1 item after validation, not 0",
        ),
        "no mapping": ("7", "Input should be a valid dictionary or instance of PodSpec"),
    }.values(),
)
def test_a_wrong_annotation_is_one_line_with_pod_and_field(text: str, complaint: str) -> None:
    with pytest.raises(JobError) as caught:
        read_pod("p", text)
    assert str(caught.value) == f"pod p: {ANNOTATION}: {complaint}; fix the annotation".replace(": : ", ": ")


def test_a_pod_that_is_none_of_its_groups_members_is_refused() -> None:
    text = (
        "{virtualCluster: v, leafCellNumber: 2, affinityGroup: {name: g, members: [{podNumber: 1, leafCellNumber: 8}]}}"
    )
    with pytest.raises(JobError, match="no member of group 'g' has 2 GPUs, as this pod has"):
        read_pod("p", text)


def test_what_is_no_yaml_is_one_line() -> None:
    with pytest.raises(JobError) as caught:
        read_pod("p", "a: [")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("; write YAML")
