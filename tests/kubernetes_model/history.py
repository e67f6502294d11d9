"""Random histories of a cluster, its users, and services that come and go. One integer determines a history.

To see one again:

    PYTHONPATH=src:tests python tests/kubernetes_model/history.py SEED [STEPS]
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from random import Random

from kubernetes_model.api_server import (
    KINDS,
    has,
)
from kubernetes_model.leader import Leader
from kubernetes_model.stub_scheduler import StubScheduler
from kubernetes_model.surroundings import Surroundings
from kubernetes_model.witness import Witness
from world import Violation

from horae.engines.kubernetes.api import JOBS, NODES
from horae.engines.kubernetes.objects import read_job
from horae.model.cluster import Cluster, Gpu
from horae.model.commands import Command, Start, Survey
from horae.model.events import Event, Surveyed

STEPS = 150
CALM_ROUNDS = 400
CALM_SECONDS = 10.0
STEP_KINDS = {
    "act": 25,
    "news": 20,
    "loop": 20,
    "decide": 12,
    "controller_reads": 10,
    "controller_acts": 12,
    "kubelet": 20,
    "hours_pass_well": 14,
    "collect": 5,
    "time_passes": 4,
    "submit": 3,
    "relist": 1,
    "faults": 2,
    "users_change_a_job": 2,
    "users_delete_a_pod": 1,
    "foreign_pods": 3,
    "nodes_change": 1.5,
    "crash": 1,
    "old_leaders_act": 4,
}


# Not among them: `old_leaders_go_on`. What a former leader decides after it was paused is fenced only where it has seen
# the new term; closing that gap is up to its process, which must not act once its lead has expired.


def drive(
    seed: int,
    steps: int = STEPS,
    without: frozenset[str] = frozenset(),
    log: list[str] | None = None,
    scheduler: type[StubScheduler] = StubScheduler,
) -> History:
    """One history; whatever goes wrong is a `Violation` that says how to see it again."""
    history = History(seed, without, log, scheduler)
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
    def __init__(
        self, seed: int, without: frozenset[str], log: list[str] | None, scheduler: type[StubScheduler] = StubScheduler
    ) -> None:
        self.random = random = Random(seed)
        self.log = log
        self.without = without
        self.step = 0
        self.world = Surroundings(random, without, self.say)
        self.server = self.world.server
        self.witness = Witness(self.server, self.world.kubelets)
        self.scheduler = scheduler()
        self.job_ids: dict[str, str] = {}  # by uid: the store
        self.former: list[Leader] = []
        self.submitted = 0
        self.served: set[str] = set()  # kinds of steps that happened
        self.leader = self._lead(1)
        for _ in range(random.randint(0, 3)):
            self.world.submit()
        if random.random() < 0.8:
            self.leader.catch_up()

    @property
    def now(self) -> float:
        return self.world.now

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
        getattr(self if hasattr(self, kind) else self.world, kind)()
        self.witness.look()

    def close(self) -> None:
        for leader in (self.leader, *self.former):
            leader.engine.close()

    # The service

    def _lead(self, term: int) -> Leader:
        leader = Leader(self.server, self.random, lambda: self.now, term)
        leader.actions.on_submitted = lambda action: None
        self.witness.lead(leader)
        self.scheduler.begin(leader.cluster())
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

    def old_leaders_go_on(self) -> None:
        """One was paused, and has not noticed yet that another leads."""
        if self.former:
            leader = self.random.choice(self.former[-2:])
            leader.watch(self.random.choice(KINDS), self.random.choice((5, 100)))
            leader.engine.wait(self.now)

    def hours_pass_well(self) -> None:
        """Most of the time everything works, and each part does what it has to do; some parts lag behind."""
        parts = [self._all_news, self.loop, self._all_actions, self.world.controllers_work, self.world.kubelets_work]
        parts.insert(2, self.old_leaders_act)
        for part in parts * self.random.randint(1, 2):
            if self.random.random() < 0.9:
                part()

    def _all_news(self) -> None:
        for kind in KINDS:
            if self.random.random() < 0.9:
                self.leader.watch(kind, 100)

    def _all_actions(self) -> None:
        for _ in range(len(self.leader.actions.waiting)):
            self.act()

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
        cancelled: list[Command] = []
        for job_id, reason in engine.take_gone().items():
            self.say(f"   gone: {job_id} {reason}")
            job = self.scheduler.jobs.get(job_id)
            if job is not None and not job.is_over:
                cancelled += self.scheduler.cancel(job_id, self.now)
        self._forget()
        if self._crashes():
            return
        commands = [*cancelled, *self._handle(moment.events)]
        if not self._crashes():
            self._execute(commands)
            self._crashes(0.05 if leader.actions.places else 0.0)  # with pods that are about to be placed

    def _register(self, uid: str) -> None:
        """The Job is submitted, or was before: its uid is the key."""
        job = read_job(self.server.objects[JOBS][uid]) if uid in self.server.objects[JOBS] else None
        if uid not in self.job_ids:
            if job is None or job.pod_gpus < 1:
                return
            self.submitted += 1
            self.job_ids[uid] = f"{self.submitted}"
            self.scheduler.submit(self.job_ids[uid], job.parallelism, job.pod_gpus, self.now)
            self.witness.uids[self.job_ids[uid]] = uid
        self.say(f"   job {self.job_ids[uid]} is {uid}")
        self.leader.engine.register(self.job_ids[uid], uid)

    def _forget(self) -> None:
        for job_id in self.scheduler.forgotten:
            self.leader.engine.forget(job_id)
        self.scheduler.forgotten = []

    def _handle(self, events: Sequence[Event]) -> list[Command]:
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

    def _crashes(self, probability: float = 0.004) -> bool:
        if "crash" in self.without or self.random.random() >= probability:
            return False
        self.crash()
        return True

    def crash(self) -> None:
        """Another process leads; what the former one has under way may still arrive."""
        self.say("   another process leads")
        self.former.append(self.leader)
        keeps = self.random.random() < 0.7
        term = self.leader.term + 1
        self.scheduler = self.scheduler.restored(self.leader.cluster(), term, keeps_leases=keeps)
        self.leader = self._lead(term)
        if self.random.random() < 0.7:
            self.leader.catch_up()
        self._execute([Survey()])

    def faults(self) -> None:
        self.leader.api.failing = self.random.choice((0.0, 0.0, 0.1, 0.4))
        self.leader.api.is_away = self.random.random() < 0.2

    # The end

    def calm_down(self) -> None:
        """Faults cease: each lease must then begin and end as the scheduler says, and each Job must come to its end."""
        self.world.may_fail = False
        self.leader.api.failing, self.leader.api.is_away = 0.0, False
        self.without = self.without | {"crash"}
        self.scheduler.is_calm = True
        for node in self.server.all(NODES):
            if not has(node, "Ready") and self.random.random() < 0.5:
                self.world.toggle_ready(node)
        for round_ in range(CALM_ROUNDS):
            self._calm_round(round_)
            if round_ % 20 == 19 and self._is_at_rest():
                break
        else:
            raise Violation(f"everything comes to an end once faults cease: {self._unfinished()}")
        self._compare_survey()

    def _calm_round(self, round_: int) -> None:
        self.say(f"-- calm {round_} at {self.now:g}")
        self.world.now += CALM_SECONDS
        for part in (self._work, self.world.works_well):
            part()
            self.witness.look()
        if round_ % 35 == 34:
            self.world.evict()

    def _work(self) -> None:
        for _ in range(3):
            self.leader.catch_up()
            self.loop()
            self.decide()
            while self.leader.actions.waiting:
                self.act()

    def _unfinished(self) -> list[str]:
        """Leases that neither run nor end, and Jobs that were never submitted."""
        return [*self.world.unsubmitted(self.job_ids), *self.scheduler.unfinished()]

    def _is_at_rest(self) -> bool:
        return not self._unfinished()

    def _compare_survey(self) -> None:
        """A new leader finds the same leases, from the cluster alone."""
        former = self._survey()
        self.former.append(self.leader)
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
