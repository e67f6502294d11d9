"""Short histories of a Kubernetes cluster in which promises were once broken, found by random ones and cut down."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes_model.api_server import is_terminal, node_of, notes_of, set_condition
from kubernetes_model.controllers import GPU
from kubernetes_model.stage import Stage

from horae.engines.kubernetes.api import JOBS, NODES, PODS, Json
from horae.engines.kubernetes.objects import EndNote, LeaseNote, read_pod
from horae.model.cluster import Gpu
from horae.model.commands import Start, Stop, Survey
from horae.model.events import Ending, Event, GpuChanged, GpuState, JobEnded, JobStarted
from horae.model.shapes import Shape

GPU0, GPU1, GPU2, GPU3 = (Gpu("n0", number) for number in range(4))


def ends(events: list[Event]) -> list[tuple[int, Ending]]:
    return [(event.epoch, event.ending) for event in events if isinstance(event, JobEnded)]


def go_on(stage: Stage, rounds: int = 6) -> list[Event]:
    events: list[Event] = []
    for _ in range(rounds):
        stage.cluster_acts()
        events += stage.settle()
    return events


# Pods that have ended


def test_a_failed_pod_that_is_left_behind_does_not_hold_the_end_of_its_lease_up() -> None:
    stage = Stage()
    stage.add_job("1", pods=2)
    stage.run(5, "1", GPU0, GPU1)
    stage.end(stage.pods("1")[0], 1)
    assert ends(go_on(stage)) == [(5, Ending.FAILED)]
    assert [pod["status"]["phase"] for pod in stage.pods("1")] == ["Failed"]  # kept, for its log


def test_a_survey_does_not_find_the_lease_of_a_job_that_has_finished() -> None:
    stage = Stage()
    stage.add_job("1")
    stage.run(5, "1", GPU0)
    stage.end(stage.pods("1")[0], 0)
    assert ends(go_on(stage)) == [(5, Ending.FINISHED)]
    assert stage.survey().running == ()
    stage.lead(2)
    assert stage.survey().running == ()


def test_a_gang_of_which_one_member_has_succeeded_starts_again_without_it() -> None:
    stage = Stage()
    stage.add_job("1", pods=2)
    stage.run(5, "1", GPU0, GPU1)
    stage.end(stage.pods("1")[0], 0)
    go_on(stage)
    stage.tell(Stop(5, "1", 30.0))
    go_on(stage)
    stage.start(6, "1", GPU2, GPU3)
    assert any(isinstance(event, JobStarted) and event.epoch == 6 for event in go_on(stage, 10))


def test_a_stop_of_a_lease_that_was_never_granted_is_answered_when_the_job_has_finished() -> None:
    stage = Stage()
    stage.add_job("1")
    stage.run(5, "1", GPU0)
    stage.end(stage.pods("1")[0], 0)
    go_on(stage)
    assert ends(stage.tell(Stop(6, "1", 30.0))) == [(6, Ending.FINISHED)]


# Jobs that are gone


def test_a_job_whose_job_was_deleted_while_no_service_ran_is_told_to_be_gone() -> None:
    stage = Stage()
    uid = stage.add_job("1")
    stage.server.delete(JOBS, uid)
    leader = stage.lead(2)
    stage.settle()
    assert ends(stage.start(5, "1", GPU0)) == [(5, Ending.LOST)]
    assert "1" in leader.engine.take_gone()


def test_a_deleted_job_stays_in_surveys_until_its_last_pod_is_gone() -> None:
    stage = Stage()
    uid = stage.add_job("1")
    stage.run(5, "1", GPU0)
    stage.server.delete(JOBS, uid)
    assert ends(stage.settle()) == []
    assert [run.epoch for run in stage.survey().running] == [5]
    stage.collector.collect(stage.pods("1")[0])
    assert ends(go_on(stage)) == [(5, Ending.STOPPED)]


def test_gpus_of_a_job_that_was_gone_before_the_service_began_are_not_free() -> None:
    stage = Stage()
    uid = stage.add_job("1")
    stage.run(5, "1", GPU1)
    stage.server.delete(JOBS, uid)
    stage.lead(2)
    assert GpuChanged(0.0, GPU1, GpuState.FOREIGN, "used by a pod that has no lease") in stage.settle()
    assert ends(stage.tell(Stop(5, "1", 30.0))) == []  # its pod names the lease, and has not ended
    stage.collector.collect(stage.pods("1")[0])
    events = go_on(stage)
    assert ends(events) == [(5, Ending.STOPPED)]
    assert GpuChanged(0.0, GPU1, GpuState.USABLE) in events


def test_pods_that_were_orphaned_count_as_foreign() -> None:
    stage = Stage()
    uid = stage.add_job("1")
    stage.run(5, "1", GPU1)
    stage.server.change(PODS, stage.pods("1")[0]["metadata"]["uid"], lambda pod: pod["metadata"].pop("ownerReferences"))
    stage.server.delete(JOBS, uid)
    events = stage.settle()
    assert ends(events) == [(5, Ending.STOPPED)]
    assert GpuChanged(0.0, GPU1, GpuState.FOREIGN, "used by a pod that has no lease") in events


def test_an_answer_that_is_older_than_a_deletion_brings_no_pod_back() -> None:
    stage = Stage()
    stage.add_job("1")
    stage.start(5, "1", GPU0)
    stage.cluster_acts()
    leader = stage.lead(2)
    stage.hear()  # the take-over of the pod is under way
    leader.actions.waiting.sort(key=lambda each: "PodObject" in repr(each))
    stage.perform()
    stage.server.change(PODS, stage.pods("1")[0]["metadata"]["uid"], lambda pod: pod["metadata"].pop("finalizers"))
    stage.server.delete(PODS, stage.pods("1")[0]["metadata"]["uid"])
    for kind in (JOBS, PODS):  # what the watches say is read before the answer
        leader.watch(kind, 100)
    news = leader.engine._news
    waiting = [news.get() for _ in range(news.qsize())]
    for each in sorted(waiting, key=lambda each: not isinstance(each, list)):
        news.put(each)
    stage.leader.engine.wait(stage.now)
    assert all(not gang.pods for gang in leader.engine._gangs)


def test_a_node_that_was_created_again_between_two_lists_is_there() -> None:
    stage = Stage()
    stage.settle()
    stage.server.remove(NODES, next(iter(stage.server.objects[NODES])))
    stage.add_node("n0")
    stage.leader.list(NODES)
    assert stage.hear() == []


def test_a_dead_node_is_put_out_of_service_also_for_pods_whose_job_is_gone() -> None:
    stage = Stage()
    uid = stage.add_job("1")
    stage.run(5, "1", GPU1)
    node = next(iter(stage.server.objects[NODES]))
    stage.server.change(NODES, node, lambda found: set_condition(found, "Ready", is_true=False))
    stage.kubelets.dead.add("n0")
    stage.server.delete(JOBS, uid)
    stage.lead(2)
    stage.settle()
    stage.now += 301.0
    stage.settle()
    assert stage.server.objects[NODES][node]["spec"]["taints"][0]["key"] == "node.kubernetes.io/out-of-service"


# What users write


def test_a_copy_of_a_job_is_a_new_job() -> None:
    stage = Stage()
    uid = stage.add_job("1")
    stage.run(5, "1", GPU0)
    stage.end(stage.pods("1")[0], 0)
    go_on(stage)
    copied = dict(notes_of(stage.job("1")))
    stage.server.delete(JOBS, uid)
    stage.settle()
    stage.leader.engine.take_found()
    stage.add_job("2", notes=copied)
    assert notes_of(stage.job("2"))["horae.io/job"] == "2"
    assert "horae.io/lease" not in notes_of(stage.job("2"))
    stage.run(6, "2", GPU0)


@pytest.mark.parametrize("recorded", [None, "true"])
def test_a_job_that_was_replaced_by_a_copy_is_shown_to_the_service(recorded: str | None) -> None:
    stage = Stage()
    uid = stage.add_job("1")
    stage.edit(JOBS, uid, recorded=recorded)
    body = {**stage.job("1"), "metadata": {**stage.job("1")["metadata"]}}
    stage.server.delete(JOBS, uid)
    copy = stage.server.add(JOBS, body)["metadata"]["uid"]
    stage.hear()
    assert [found.job.uid for found in stage.leader.engine.take_found()] == [copy]


@pytest.mark.parametrize("gpus", ["0", "2", "3"])
def test_a_job_whose_pods_were_resized_ends_its_lease_and_nothing_else(gpus: str) -> None:
    stage = Stage()
    uid = stage.add_job("1")

    def resize(job: Json) -> None:
        job["spec"]["template"]["spec"]["containers"] = [{"resources": {"limits": {GPU: gpus}}}]

    stage.server.change(JOBS, uid, resize)
    stage.settle()
    stage.start(5, "1", GPU0)
    stage.tell(Survey())
    assert stage.job("1")["spec"]["suspend"]
    assert '"ending":"failed"' in notes_of(stage.job("1"))["horae.io/ended"]


def test_a_lease_that_was_ended_and_is_revived_by_an_edit_is_not_adopted_where_another_runs() -> None:
    stage = Stage()
    first = stage.add_job("1")
    stage.run(5, "1", GPU0)
    stage.tell(Stop(5, "1", 30.0))
    go_on(stage)
    stage.add_job("2")
    stage.run(6, "2", GPU0)
    stage.edit(JOBS, first, ended=None)
    stage.server.change(JOBS, first, lambda job: job["spec"].update(suspend=False))
    stage.cluster_acts()
    stage.lead(2)
    go_on(stage)
    assert not any(node_of(pod) for pod in stage.pods("1"))
    assert [node_of(pod) for pod in stage.pods("2")] == ["n0"]


def test_pods_of_a_job_that_its_owner_unsuspended_hide_no_gpus_of_others() -> None:
    stage = Stage()
    uid = stage.add_job("1", pods=1, gpus=4)
    stage.run(5, "1", GPU0, GPU1, GPU2, GPU3)
    stage.tell(Stop(5, "1", 30.0))
    go_on(stage)
    stage.server.change(JOBS, uid, lambda job: job["spec"].update(suspend=False))
    stage.cluster_acts()
    assert len(stage.pods("1")) == 1
    stage.add_pod("other", "n0", 1)
    assert GpuChanged(0.0, GPU3, GpuState.FOREIGN, "used by pods of other schedulers") in stage.hear()
    assert stage.survey().running == ()


def test_a_lease_is_found_again_though_the_id_of_its_job_was_removed() -> None:
    stage = Stage()
    uid = stage.add_job("1")
    stage.run(5, "1", GPU0)
    stage.edit(JOBS, uid, job=None)
    stage.lead(2)
    assert [(run.job_id, run.epoch) for run in stage.survey().running] == [("1", 5)]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["term", "epoch", "gpus", "cells", "until", "specification", "ending"]), inner
        )
    ),
)


@given(_json)
def test_any_annotation_can_be_read(value: object) -> None:
    for text in (json.dumps(value), str(value), "[" * 100_000, '{"term": 1e999, "epoch": 1e999}'):
        LeaseNote.parse(text)
        EndNote.parse(text)
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    for text in ("²", "9" * 5000, "-1,x", str(value)):
        notes = {f"horae.io/{key}": text for key in ("gpus", "epoch", "term", "saved-steps", "cells")}
        read_pod({"metadata": {**metadata, "annotations": notes}, "spec": {}, "status": {}})


def test_a_lease_with_other_cells_than_gpus_is_not_read() -> None:
    text = '{"term":1,"epoch":1,"gpus":["n0/0"],"cells":["node","node"],"until":0,"specification":null}'
    assert LeaseNote.parse(text) is None


# Services that come and go


def test_the_id_of_a_job_is_on_it_before_its_lease_whatever_fails() -> None:
    stage = Stage()
    stage.leader.api.is_away = True
    uid = stage.add_job("1")
    stage.start(5, "1", GPU0)
    stage.leader.api.is_away = False
    stage.now += 10.0
    stage.run(5, "1", GPU0)
    assert notes_of(stage.server.objects[JOBS][uid])["horae.io/job"] == "1"
    stage.lead(2)
    assert [run.job_id for run in stage.survey().running] == ["1"]


def test_a_stop_before_everything_is_listed_does_not_end_what_runs() -> None:
    stage = Stage()
    stage.add_job("1")
    stage.run(5, "1", GPU0)
    leader = stage.lead(2, has_listed=False)
    assert list(leader.engine.execute([Stop(5, "1", 30.0)])) == []
    assert ends(go_on(stage)) == [(5, Ending.STOPPED)]
    assert all(map(is_terminal, stage.pods("1")))


def test_take_over_writes_that_fail_are_repeated_after_a_pause() -> None:
    stage = Stage()
    stage.add_job("1")
    stage.run(5, "1", GPU0)
    leader = stage.lead(2)
    leader.api.is_away = True
    stage.settle()
    stage.hear()
    assert leader.actions.waiting == []  # not at once, and not for ever
    leader.api.is_away = False
    stage.now += 10.0
    assert [run.epoch for run in stage.survey().running] == [5]


def test_a_leader_that_was_paused_leaves_the_pods_of_its_successor_alone() -> None:
    stage = Stage()
    stage.add_job("1")
    stage.start(5, "1", GPU0)
    former = stage.leader
    stage.lead(2)
    stage.settle()  # the Job has the new term, and no pods yet
    stage.cluster_acts()
    former.catch_up()
    former.engine.wait(stage.now)
    while former.actions.waiting:
        former.actions.perform(0)
    assert [node_of(pod) for pod in stage.pods("1")] == [""]
    go_on(stage)
    assert notes_of(stage.pods("1")[0])["horae.io/term"] == "2"


def test_what_a_former_leader_has_under_way_places_nothing() -> None:
    stage = Stage()
    stage.add_job("1")
    stage.start(5, "1", GPU0)
    stage.cluster_acts()
    stage.hear()
    former = stage.leader
    assert former.actions.places
    leader = stage.lead(2)
    stage.hear()
    stage.perform()  # it takes over
    while former.actions.waiting:
        former.actions.perform(0)
    assert [node_of(pod) for pod in stage.pods("1")] == [""]
    assert leader.engine.is_synced or not leader.actions.waiting


def test_gpus_that_an_immediate_answer_frees_are_first_compared_with_pods_of_others() -> None:
    stage = Stage()
    uid = stage.add_job("1", gpus=4)
    stage.start(5, "1", GPU0, GPU1, GPU2, GPU3)
    stage.add_pod("other", "n0", 1)
    stage.server.delete(JOBS, uid)
    stage.leader.catch_up()
    stage.leader.engine._take_news()
    lease = Start(5, ("1",), (GPU0, GPU1, GPU2, GPU3), Shape("gpu", 4, "node"), (0.0,), (False,))
    replies = [type(event) for event in stage.leader.engine.execute([lease])]
    assert replies == [GpuChanged, JobEnded]
