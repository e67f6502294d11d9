"""Random histories of a cluster, its users, and services that come and go. One integer determines a history.

To see one again:

    PYTHONPATH=src:tests python tests/kubernetes_model/history.py SEED [STEPS]
"""

from __future__ import annotations

import sys
import traceback
from random import Random

from kubernetes_model.api_server import (
    KINDS,
    ApiServer,
    gpus_of,
    has,
    is_active,
    is_deleting,
    is_terminal,
    node_of,
    notes_of,
    owner_of,
    set_condition,
)
from kubernetes_model.controllers import GPU, GarbageCollector, JobController, Kubelets
from kubernetes_model.leader import Leader
from kubernetes_model.stub_scheduler import StubJob, StubScheduler
from kubernetes_model.witness import OURS, Witness
from world import Violation

from horae.engines.kubernetes.api import JOBS, NAMESPACES, NODES, PODS, Json
from horae.engines.kubernetes.objects import read_job
from horae.model.cluster import Cluster, Gpu
from horae.model.commands import Command, Start, Survey
from horae.model.events import Event, Surveyed

STEPS = 150
CALM_ROUNDS = 400
CALM_SECONDS = 10.0
STEP_KINDS = {
    "act": 25,
    "news": 25,
    "loop": 25,
    "decide": 15,
    "controller_reads": 12,
    "controller_acts": 15,
    "kubelet": 30,
    "collect": 6,
    "time_passes": 6,
    "submit": 4,
    "relist": 2,
    "faults": 2,
    "users_change_a_job": 3,
    "users_delete_a_pod": 1,
    "foreign_pods": 4,
    "nodes_change": 3,
    "crash": 2,
    "old_leaders_act": 4,
}


def drive(
    seed: int, steps: int = STEPS, without: frozenset[str] = frozenset(), log: list[str] | None = None
) -> History:
    """One history; whatever goes wrong is a `Violation` that says how to see it again."""
    history = History(seed, without, log)
    try:
        history.run(steps)
    except Exception as error:
        what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        told = "" if isinstance(error, Violation) else "\n" + "".join(traceback.format_exception(error)[-6:])
        command = f"PYTHONPATH=src:tests python tests/kubernetes_model/history.py {seed} {steps}"
        raise Violation(f"{what}\n  seed {seed}, step {history.step}, again with: {command}{told}") from error
    finally:
        history.close()
    return history


class History:
    def __init__(self, seed: int, without: frozenset[str], log: list[str] | None) -> None:
        self.random = random = Random(seed)
        self.log = log
        self.without = without
        self.step = 0
        self.now = 1000.0
        self.may_fail = random.random() < 0.7
        self.server = ApiServer()
        self.controller = JobController(self.server, random)
        self.kubelets = Kubelets(self.server, random)
        self.collector = GarbageCollector(self.server)
        self.witness = Witness(self.server, self.kubelets)
        self.scheduler = StubScheduler()
        self.job_ids: dict[str, str] = {}  # by uid: the store
        self.former: list[Leader] = []
        self.names = 0
        self.submitted = 0
        self.served: set[str] = set()  # kinds of steps that happened
        self.server.add(NAMESPACES, {"metadata": {"name": "ns", "labels": {"horae.io/tenant": "t"}}, "spec": {}})
        for _ in range(random.randint(1, 3)):
            self._add_node(f"n{self._number()}")
        self.leader = self._lead(1)
        for _ in range(random.randint(0, 3)):
            self.submit()
        if random.random() < 0.8:
            self.leader.catch_up()

    def _number(self) -> int:
        self.names += 1
        return self.names

    def say(self, text: str) -> None:
        if self.log is not None:
            self.log.append(text)

    def run(self, steps: int) -> None:
        kinds = {kind: weight for kind, weight in STEP_KINDS.items() if kind not in self.without}
        for self.step in range(steps):
            kind = self.random.choices(list(kinds), list(kinds.values()))[0]
            self.do(kind)
        self.step = steps
        self.calm_down()

    def do(self, kind: str) -> None:
        self.say(f"-- {self.step} {kind} at {self.now:g}")
        self.served.add(kind)
        getattr(self, kind)()
        self.witness.look()

    def close(self) -> None:
        self.leader.engine.close()

    # The service

    def _lead(self, term: int) -> Leader:
        leader = Leader(self.server, self.random, lambda: self.now, term)
        leader.actions.on_submitted = lambda action: None
        self.witness.lead(leader)
        self.scheduler.nodes = self.scheduler.nodes or {node.name: node for node in leader.cluster().nodes}
        nodes = Cluster("test", tuple(self.scheduler.nodes.values()))
        leader.engine.believe(nodes, self.scheduler.health, self.scheduler.gpus)
        return leader

    def act(self) -> None:
        waiting = self.leader.actions.waiting
        if waiting:
            index = self.random.randrange(len(waiting))
            self.say(f"   {waiting[index][1]}")
            self.leader.actions.perform(index)

    def old_leaders_act(self) -> None:
        leaders = [each for each in self.former if each.actions.waiting]
        if leaders:
            actions = self.random.choice(leaders).actions
            index = self.random.randrange(len(actions.waiting))
            self.say(f"   {actions.waiting[index][1]}")
            actions.perform(index)

    def news(self) -> None:
        self.leader.watch(self.random.choice(KINDS), self.random.choice((1, 2, 5, 100)))

    def relist(self) -> None:
        self.leader.list(self.random.choice(KINDS))

    def loop(self) -> None:
        """One cycle of the service; it may crash after each part."""
        leader, engine = self.leader, self.leader.engine
        leader.seen = dict(leader.read)
        moment = engine.wait(self.now)
        assert moment is not None
        for found in engine.take_found():
            self._register(found.job.uid)
        for job_id, reason in engine.take_gone().items():
            self.say(f"   gone: {job_id} {reason}")
            job = self.scheduler.jobs.get(job_id)
            if job is not None and not job.is_over:
                self.scheduler.end(job)
        self._forget()
        if self._crashes():
            return
        commands = self._handle(moment.events)
        if not self._crashes():
            self._execute(commands)

    def _register(self, uid: str) -> None:
        """The Job is submitted, or was before: its uid is the key."""
        job = read_job(self.server.objects[JOBS][uid]) if uid in self.server.objects[JOBS] else None
        if uid not in self.job_ids:
            if job is None or job.pod_gpus < 1:
                return
            self.submitted += 1
            self.job_ids[uid] = f"{self.submitted}"
            self.scheduler.jobs[self.job_ids[uid]] = StubJob(self.job_ids[uid], job.parallelism, job.pod_gpus)
            self.witness.uids[self.job_ids[uid]] = uid
        self.say(f"   job {self.job_ids[uid]} is {uid}")
        self.leader.engine.register(self.job_ids[uid], uid)

    def _forget(self) -> None:
        for job_id in self.scheduler.forgotten:
            self.leader.engine.forget(job_id)
        self.scheduler.forgotten = []

    def _handle(self, events: list[Event] | tuple[Event, ...]) -> list[Command]:
        commands: list[Command] = []
        for event in events:
            self.say(f"   > {event}")
            self.witness.heard(event)
            commands += self.scheduler.handle(event, self.now)
        self._forget()
        return commands

    def _execute(self, commands: list[Command]) -> None:
        while commands:
            for command in commands:
                self.say(f"   < {command}")
                if isinstance(command, Start):
                    job_id = command.job_ids[0]
                    uid = self.witness.uids[job_id]
                    self.leader.engine.expect(job_id, uid, {"job": job_id})
            self.witness.commanded(commands)
            replies = list(self.leader.engine.execute(commands))
            self.witness.executed(commands)
            commands = self._handle(replies)

    def decide(self) -> None:
        self._execute(self.scheduler.decide(self.random, self.now))

    def _crashes(self) -> bool:
        if "crash" in self.without or self.random.random() > 0.02:
            return False
        self.crash()
        return True

    def crash(self) -> None:
        """Another process leads; what the former one has under way may still arrive."""
        self.say("   another process leads")
        self.leader.engine.close()
        self.former.append(self.leader)
        keeps = self.random.random() < 0.7
        term = self.leader.term + 1
        self.scheduler = self.scheduler.restored(self.leader.cluster(), term, keeps_leases=keeps)
        self.leader = self._lead(term)
        self._execute([Survey()])

    def faults(self) -> None:
        self.leader.api.failing = self.random.choice((0.0, 0.0, 0.1, 0.4))
        self.leader.api.is_away = self.random.random() < 0.2

    def time_passes(self) -> None:
        self.now += self.random.choice((0.1, 1.0, 10.0, 60.0))

    # The cluster

    def controller_reads(self) -> None:
        for uid in self._some_jobs():
            self.controller.read(uid)

    def controller_acts(self) -> None:
        for uid in self._some_jobs():
            self.controller.sync(uid, self.now)

    def kubelet(self) -> None:
        pods = [pod for pod in self.server.all(PODS) if node_of(pod)]
        if pods:
            may_finish = self.random.random() < 0.15
            self.kubelets.act(self.random.choice(pods), may_fail=self.may_fail, may_finish=may_finish)

    def collect(self) -> None:
        found = self.collector.orphans()
        if found:
            self.collector.collect(self.random.choice(found))
        stranded = self.collector.stranded()
        if stranded and self.random.random() < 0.3:
            self.collector.force(self.random.choice(stranded))
        self.collector.finish()

    def _some_jobs(self) -> list[str]:
        uids = list(self.server.objects[JOBS])
        gone = {owner_of(pod) for pod in self.server.all(PODS)} - set(uids) - {""}
        uids += sorted(gone)
        return self.random.sample(uids, min(len(uids), 2))

    # Users

    def submit(self) -> None:
        self._create_job(f"j{self._number()}", {})

    def _create_job(self, name: str, notes: dict[str, str]) -> None:
        random = self.random
        pods = random.randint(1, 3)
        is_indexed = random.random() < 0.7
        resources = {"limits": {GPU: str(random.randint(1, 2))}}
        spec: Json = {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed" if is_indexed else "NonIndexed",
            "suspend": random.random() < 0.9,
            "backoffLimit": random.choice((0, 1, 6)),
            "template": {"metadata": {}, "spec": {"schedulerName": OURS, "containers": [{"resources": resources}]}},
        }
        if random.random() < 0.7:
            spec["podReplacementPolicy"] = "Failed"
        metadata = {"namespace": "ns", "name": name, "annotations": notes}
        self.server.add(JOBS, {"metadata": metadata, "spec": spec, "status": {}})

    def users_change_a_job(self) -> None:
        jobs = self.server.all(JOBS)
        if not jobs:
            return
        job = self.random.choice(jobs)
        act = self.random.choice((self._toggle, self._toggle, self._delete_job, self._replace_job, self._edit_job))
        self.say(f"   {job['metadata']['name']} {job['metadata']['uid']} {act.__name__}")
        act(job)

    def _toggle(self, job: Json) -> None:
        def toggle(found: Json) -> None:
            found["spec"] = {**found["spec"], "suspend": not found["spec"]["suspend"]}

        self.server.change(JOBS, job["metadata"]["uid"], toggle)

    def _replace_job(self, job: Json) -> None:
        """Deleted and created again under the same name; with all its annotations, as a copy of it has them."""
        self._delete_job(job)
        if job["metadata"]["uid"] not in self.server.objects[JOBS]:
            copied = "copies" not in self.without and self.random.random() < 0.5
            self._create_job(job["metadata"]["name"], dict(notes_of(job)) if copied else {})

    def _edit_job(self, job: Json) -> None:
        """Other annotations; another size of its pods, while it is suspended."""
        if "edits" in self.without:
            return
        uid, draw = job["metadata"]["uid"], self.random.random()

        def edit(found: Json) -> None:
            notes = dict(notes_of(found))
            if notes and draw < 0.6:
                notes.pop(self.random.choice(sorted(notes)))
                found["metadata"] = {**found["metadata"], "annotations": notes}
            elif found["spec"]["suspend"] and has(found, "Suspended") and not found["status"].get("active"):
                template = found["spec"]["template"]
                resources = {"limits": {GPU: self.random.choice(("0", "1", "2", "3"))}}
                spec = {**template["spec"], "containers": [{"resources": resources}]}
                found["spec"] = {**found["spec"], "template": {**template, "spec": spec}}

        self.server.change(JOBS, uid, edit)

    def _delete_job(self, job: Json) -> None:
        uid, draw = job["metadata"]["uid"], self.random.random()
        if draw < 0.3:  # in the foreground

            def wait_for_pods(found: Json) -> None:
                found["metadata"]["finalizers"] = ["foregroundDeletion"]

            self.server.change(JOBS, uid, wait_for_pods)
        elif draw < 0.5 and "orphans" not in self.without:
            for pod in self.server.pods_of(uid):
                self.server.change(PODS, pod["metadata"]["uid"], lambda found: found["metadata"].pop("ownerReferences"))
        self.server.delete(JOBS, uid)

    def users_delete_a_pod(self) -> None:
        pods = [pod for pod in self.server.all(PODS) if pod["spec"].get("schedulerName") == OURS]
        if pods:
            is_forced = "force" not in self.without and self.random.random() < 0.2
            self.server.delete(PODS, self.random.choice(pods)["metadata"]["uid"], 0 if is_forced else None)

    # Others

    def foreign_pods(self) -> None:
        nodes = [node for node in self.server.all(NODES) if has(node, "Ready")]
        own = [pod for pod in self.server.all(PODS) if pod["spec"].get("schedulerName") != OURS]
        if own and self.random.random() < 0.5:
            pod = self.random.choice(own)["metadata"]["uid"]
            self.server.delete(PODS, pod, 0)
        elif nodes:
            self._add_foreign(self.random.choice(nodes), is_stale=self.random.random() < 0.3)

    def _add_foreign(self, node: Json, *, is_stale: bool) -> None:
        """Another scheduler sees what others have bound; with an old view it does not see what we have."""
        name, gpus = node["metadata"]["name"], self.random.randint(1, 2)
        counted = [pod for pod in self.server.all(PODS) if node_of(pod) == name and not is_terminal(pod)]
        if is_stale:
            counted = [pod for pod in counted if pod["spec"].get("schedulerName") != OURS]
        if sum(map(gpus_of, counted)) + gpus > int(node["status"]["allocatable"][GPU]):
            return
        spec = {
            "schedulerName": "default-scheduler",
            "nodeName": name,
            "containers": [{"resources": {"limits": {GPU: str(gpus)}}}],
        }
        metadata = {"namespace": "ns", "name": f"f{self._number()}"}
        self.server.add(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    # Nodes

    def _add_node(self, name: str) -> None:
        status = {
            "capacity": {GPU: "4"},
            "allocatable": {GPU: "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.server.add(NODES, {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": status})
        self.kubelets.dead.discard(name)

    def nodes_change(self) -> None:
        nodes, draw = self.server.all(NODES), self.random.random()
        if len(nodes) < 4 and (not nodes or draw < 0.2):
            self._add_node(f"n{self._number()}")
            return
        node = self.random.choice(nodes)
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        if draw < 0.4:
            self._toggle_ready(node)
        elif draw < 0.6:

            def cordon(found: Json) -> None:
                found["spec"] = {**found["spec"], "unschedulable": not found["spec"].get("unschedulable")}

            self.server.change(NODES, uid, cordon)
        elif draw < 0.8:

            def shrink(found: Json) -> None:
                usable = {**found["status"]["allocatable"], GPU: str(self.random.randint(2, 4))}
                found["status"] = {**found["status"], "allocatable": usable}

            self.server.change(NODES, uid, shrink)
        else:
            self.server.remove(NODES, uid)
            if len(nodes) == 1 or self.random.random() < 0.5:
                self._add_node(name)

    def _toggle_ready(self, node: Json) -> None:
        """A machine dies or comes back; its pods are no longer ready, and are evicted after a while."""
        name, is_ready = node["metadata"]["name"], has(node, "Ready")
        (self.kubelets.dead.add if is_ready and self.random.random() < 0.7 else self.kubelets.dead.discard)(name)
        self.server.change(
            NODES, node["metadata"]["uid"], lambda found: set_condition(found, "Ready", is_true=not is_ready)
        )
        for pod in self.server.all(PODS):
            if is_ready and node_of(pod) == name and has(pod, "Ready"):
                self.server.change(
                    PODS, pod["metadata"]["uid"], lambda found: set_condition(found, "Ready", is_true=False)
                )

    def _evict(self) -> None:
        for node in self.server.all(NODES):
            for pod in self.server.all(PODS):
                if not has(node, "Ready") and node_of(pod) == node["metadata"]["name"] and is_active(pod):
                    self.server.delete(PODS, pod["metadata"]["uid"])

    # The end

    def calm_down(self) -> None:
        """Faults cease: each lease must then begin and end as the scheduler says, and each Job must come to its end."""
        self.may_fail = False
        self.leader.api.failing, self.leader.api.is_away = 0.0, False
        self.without = self.without | {"crash"}
        self.scheduler.is_calm = True
        for node in self.server.all(NODES):
            if not has(node, "Ready") and self.random.random() < 0.5:
                self._toggle_ready(node)
        for round_ in range(CALM_ROUNDS):
            self._calm_round(round_)
            if round_ % 20 == 19 and self._is_at_rest():
                break
        else:
            raise Violation(f"everything comes to an end once faults cease: {self._unfinished()}")
        self._compare_survey()

    def _calm_round(self, round_: int) -> None:
        self.say(f"-- calm {round_} at {self.now:g}")
        self.now += CALM_SECONDS
        for part in (self._work, self._cluster_works):
            part()
            self.witness.look()
        if round_ % 35 == 34:
            self._evict()

    def _work(self) -> None:
        for _ in range(3):
            self.leader.catch_up()
            self.loop()
            self.decide()
            while self.leader.actions.waiting:
                self.act()

    def _cluster_works(self) -> None:
        for uid in sorted({*self.server.objects[JOBS], *map(owner_of, self.server.all(PODS))} - {""}):
            for _ in range(3):
                self.controller.read(uid)
                self.controller.sync(uid, self.now)
        for pod in self.server.all(PODS):
            if pod["metadata"]["uid"] in self.server.objects[PODS] and node_of(pod):
                self.kubelets.act(pod, may_fail=False, may_finish=self.random.random() < 0.2)
        for pod in self.collector.orphans():
            self.collector.collect(pod)
        for pod in self.collector.stranded():
            self.collector.force(pod)
        self.collector.finish()

    def _unfinished(self) -> list[str]:
        """Leases that neither run nor end, and Jobs that were never submitted."""
        found = [
            f"{job['metadata']['name']} was not submitted"
            for uid, job in self.server.objects[JOBS].items()
            if uid not in self.job_ids
            and not (has(job, "Complete") or has(job, "Failed") or is_deleting(job))
            and gpus_of({"spec": job["spec"]["template"]["spec"]}) > 0
        ]
        for job in self.scheduler.jobs.values():
            lease = job.lease
            if lease is not None and (lease.is_stopping or not lease.is_running):
                found.append(f"{job}")
        return found

    def _is_at_rest(self) -> bool:
        return not self._unfinished()

    def _compare_survey(self) -> None:
        """A new leader finds the same leases, from the cluster alone."""
        former = self._survey()
        self.leader.engine.close()
        self.scheduler = self.scheduler.restored(self.leader.cluster(), self.leader.term + 1, keeps_leases=True)
        self.leader = self._lead(self.leader.term + 1)
        latter = self._survey()
        if _leases(former) != _leases(latter):
            raise Violation(f"leases are found again: {former.running} are now {latter.running}")

    def _survey(self) -> Surveyed:
        for _ in range(3):
            self.leader.catch_up()
            self.leader.engine.wait(self.now)
            while self.leader.actions.waiting:
                self.act()
        replies = [*self.leader.engine.execute([Survey()]), *self.leader.engine.wait(self.now).events]  # type: ignore[union-attr]
        return next(each for each in replies if isinstance(each, Surveyed))


def _leases(survey: Surveyed) -> list[tuple[str, int, tuple[Gpu, ...]]]:
    return [(run.job_id, run.epoch, run.gpus) for run in survey.running]


def main() -> None:
    log: list[str] = []
    try:
        drive(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else STEPS, log=log)
    finally:
        print("\n".join(log))


if __name__ == "__main__":
    main()
