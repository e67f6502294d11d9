"""Gangs of pods without a Job under random histories: pods that come, go and fail, commands, lost answers, new leaders.

The engine is the real one; scheduler and service are played by the test, and keep their word about what they know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

from hypothesis import given
from hypothesis import strategies as st
from pods_in_memory import NAMESPACE, PodsInMemory, Waiting
from profiles import examples

from horae.engines.kubernetes import names
from horae.engines.kubernetes.actions import Bind
from horae.engines.kubernetes.api import NODES as NODE_KIND
from horae.engines.kubernetes.api import PODS, Json
from horae.engines.kubernetes.engine import WATCHED, KubernetesEngine
from horae.engines.kubernetes.hardware import Labels
from horae.engines.kubernetes.informer import Change, Synced
from horae.engines.kubernetes.objects import PodObject
from horae.engines.kubernetes.pod_gangs import PodRules, Request
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import Ending, Event, JobEnded, Surveyed

NODES = tuple(Node(f"n{index}", "A100", 4, levels=(("pair", 2),)) for index in range(4))
LABELS = Labels(inside={"A100": {"pair": 2}})
GANGS: Mapping[str, tuple[int, ...]] = {"one": (2,), "two": (2, 2), "mixed": (4, 2, 1, 1)}
PARTS = [(group, index) for group, sizes in GANGS.items() for index in range(len(sizes))]
OPERATIONS = (
    *("create", "create", "create", "create", "delete", "end", "fail", "finish", "tell", "tell", "tell all"),
    *("run", "run", "run all", "turn", "turn", "turn", "lose request", "lose answer", "start", "start", "stop", "lead"),
)


def node_object(node: Node) -> Json:
    amounts = {names.GPU_RESOURCE: node.gpus}
    return {
        "metadata": {"name": node.name, "resourceVersion": "1", "labels": {LABELS.product: node.accelerator}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def read_request(pod: PodObject) -> Request | str:
    group, gpus = pod.annotations[names.HIVED_REQUEST].split(":")
    return Request(group, GANGS[group], int(gpus), group)


class World:
    """Scheduler, service, owners and kubelets around an engine that leads, and former ones whose writes are late."""

    def __init__(self) -> None:
        self.api = PodsInMemory()
        self.api.on_change = self.check_gpus
        self.term = 0
        self.clock = 0.0
        self.epoch = 0
        self.ids: dict[str, str] = {}  # by key of its pods: the job; the store has it for ever
        self.sizes: dict[str, tuple[int, ...]] = {}  # by job
        self.leases: dict[str, tuple[int, tuple[Gpu, ...]]] = {}  # by job: epoch and GPUs
        self.waiting: list[str] = []
        self.stopped: dict[str, int] = {}  # by job that is to leave: the epoch
        self.all_stopped: set[int] = set()
        self.ended: set[int] = set()
        self.cancelled: set[str] = set()
        self.begun: set[int] = set()
        self.bindings: list[Bind] = []  # that were submitted in this turn
        self.former: list[Waiting] = []
        self.executor: Waiting
        self.engine: KubernetesEngine
        self.count = 0
        self.lead()

    # The engine

    def lead(self) -> None:
        """Another process leads: it lists what there is; of the former one, what is under way may still happen."""
        if self.term:
            self.former.append(self.executor)
            self.engine.close()
        self.term += 1
        self.executor = Waiting()
        self.executor.on_submit = self.submitted
        self.engine = KubernetesEngine(
            self.api,  # type: ignore[arg-type]  # as far as pods need it
            Cluster("", NODES),
            lambda: self.clock,
            term=self.term,
            type_of=str,
            labels=LABELS,
            executor=self.executor,
            pods=PodRules(read_request),
        )
        self.api.news.clear()
        listed = [Change(PODS, uid, found) for uid, found in self.api.pods.items()]
        nodes = [Change(NODE_KIND, node.name, node_object(node)) for node in NODES]
        self.engine.tell([*nodes, *listed, *map(Synced, WATCHED)])
        again: list[Command] = [self.start_of(job) for job in self.leases if self.leases[job][0] not in self.begun]
        again += [Stop(epoch, job, 0.0) for job, epoch in self.stopped.items()]
        self.execute([*again, Survey()])

    def submitted(self, given: Sequence[object]) -> None:
        if len(given) == 2 and isinstance(given[1], Bind):
            assert given[1].epoch not in self.all_stopped, "binds to a lease that was stopped"
            self.bindings.append(given[1])

    def execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Start):
                key = next(key for key, job in self.ids.items() if job == command.job_ids[0])
                self.engine.expect(command.job_ids[0], key, {"job": command.job_ids[0]})
        self.take(self.engine.execute(commands))
        self.check_bindings()

    def turn(self) -> None:
        self.clock += 10.0  # longer than the pauses between attempts
        moment = self.engine.wait(-inf)
        assert moment is not None
        for found in self.engine.take_found():
            job = self.ids.setdefault(found.job.uid, str(len(self.ids)))
            group = found.job.name
            if job not in self.sizes:
                self.sizes[job] = GANGS[group]
                self.waiting.append(job)
            self.engine.register(job, found.job.uid)
        self.take(moment.events)
        for job in self.engine.take_gone():
            self.cancelled.add(job)
            if job in self.waiting:
                self.waiting.remove(job)
            elif job in self.leases:
                self.stop(job)
        self.check_bindings()

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, JobEnded) and self.leases.get(event.job_id, (-1,))[0] == event.epoch:
                self.end(event.job_id, event.ending)
            if isinstance(event, Surveyed):
                self.survey(event)

    def end(self, job: str, ending: Ending) -> None:
        """A job whose lease was stopped or lost waits again, until the service cancels it because its pods are gone."""
        epoch, _ = self.leases.pop(job)
        self.ended.add(epoch)
        self.stopped.pop(job, None)
        if ending in (Ending.STOPPED, Ending.LOST) and job not in self.cancelled:
            self.waiting.append(job)

    def survey(self, found: Surveyed) -> None:
        running = {run.epoch: run for run in found.running}
        for job, (epoch, gpus) in list(self.leases.items()):
            if epoch in running:
                assert running[epoch].job_id == job
                assert set(running[epoch].gpus) == set(gpus)
            elif epoch in self.begun:
                self.end(job, Ending.LOST)

    # The scheduler

    def start(self, number: int) -> None:
        ready = [job for job in self.waiting if job not in self.cancelled]
        if not ready:
            return
        job = ready[number % len(ready)]
        gpus = self.room(self.sizes[job])
        if gpus is None:
            return
        self.waiting.remove(job)
        self.epoch += 1
        self.leases[job] = self.epoch, gpus
        self.execute([self.start_of(job)])

    def start_of(self, job: str) -> Start:
        epoch, gpus = self.leases[job]
        return Start(epoch, (job,), gpus, None, (0.0,), False, inf)  # type: ignore[arg-type]

    def room(self, sizes: Sequence[int]) -> tuple[Gpu, ...] | None:
        taken = {gpu for _, gpus in self.leases.values() for gpu in gpus}
        found: list[Gpu] = []
        for size in sorted(sizes, reverse=True):
            free = [
                [gpu for gpu in (Gpu(node.name, number) for number in range(node.gpus)) if gpu not in {*taken, *found}]
                for node in NODES
            ]
            fitting = [each for each in free if len(each) >= size]
            if not fitting:
                return None
            found += fitting[0][:size]
        return tuple(found)

    def stop(self, job: str) -> None:
        epoch, _ = self.leases[job]
        self.stopped[job] = epoch
        self.all_stopped.add(epoch)
        self.execute([Stop(epoch, job, 0.0)])

    # What must hold

    def check_bindings(self) -> None:
        """The first pods of a lease are bound together, and they are a whole gang."""
        for epoch, count in Counter(each.epoch for each in self.bindings).items():
            if epoch not in self.begun:
                job = next(job for job, lease in self.leases.items() if lease[0] == epoch)
                assert count == len(self.sizes[job]), "binds a part of a gang"
                self.begun.add(epoch)
        self.bindings.clear()

    def check_gpus(self) -> None:
        used: Counter[tuple[str, str]] = Counter()
        for found in self.api.holders():
            notes = found["metadata"]["annotations"]
            numbers = notes[names.GPUS].split(",")
            assert len(numbers) == int(notes[names.HIVED_REQUEST].split(":")[1])
            used.update((found["spec"]["nodeName"], number) for number in numbers)
        assert not [gpu for gpu, count in used.items() if count > 1], "two pods have a GPU"

    # Whatever happens

    def do(self, operation: str, number: int) -> None:  # noqa: PLR0912  one branch per operation
        uids = list(self.api.pods)
        bound = [found["metadata"]["uid"] for found in self.api.holders()]
        match operation:
            case "create":
                self.create(*PARTS[number % len(PARTS)])
            case "delete" if uids:
                self.delete(uids[number % len(uids)])
            case "end" | "fail" if bound:
                self.api.set_phase(bound[number % len(bound)], "Succeeded" if operation == "end" else "Failed")
            case "finish" if self.api.told_to_leave():
                self.api.remove(self.api.told_to_leave()[number % len(self.api.told_to_leave())])
            case "tell" if self.api.news:
                self.engine.tell([self.api.news.pop(0)])
            case "tell all":
                self.tell_all()
            case "run" if self.late():
                executor, index = self.late()[number % len(self.late())]
                executor.run(index)
            case "run all":
                self.run_all()
            case "turn":
                self.turn()
            case "lose request" | "lose answer":
                self.api.next_fault = operation.removeprefix("lose ")
            case "start":
                self.start(number)
            case "stop" if self.leases:
                self.stop(sorted(self.leases)[number % len(self.leases)])
            case "lead":
                self.lead()

    def create(self, group: str, index: int) -> None:
        """An owner makes a pod again under the same name once the former one is gone or over."""
        name = f"{group}-{index}"
        former = [each for each in self.api.pods.values() if each["metadata"]["name"] == name]
        if not former:
            self.count += 1
            self.api.add(f"u{self.count}", name, f"{group}:{GANGS[group][index]}")
        elif former[0]["status"].get("phase") in ("Succeeded", "Failed"):
            self.api.remove(former[0]["metadata"]["uid"])

    def delete(self, uid: str) -> None:
        fault, self.api.next_fault = self.api.next_fault, ""
        self.api.delete(PODS, NAMESPACE, "", {"preconditions": {"uid": uid}})
        self.api.next_fault = fault

    def late(self) -> list[tuple[Waiting, int]]:
        return [(each, index) for each in (*self.former, self.executor) for index in range(len(each.calls))]

    def tell_all(self) -> None:
        news, self.api.news = self.api.news, []
        self.engine.tell(list(news))

    def run_all(self) -> None:
        while self.late():
            self.late()[0][0].run()

    def settle(self) -> None:
        """Nothing is late or lost any more, and kubelets do what they are told, until nothing changes."""
        self.api.next_fault = ""
        for _ in range(12):
            self.run_all()
            self.tell_all()
            self.turn()
            for uid in self.api.told_to_leave():
                self.api.remove(uid)

    def create_all(self) -> None:
        for _ in range(2):  # a pod that has ended is removed before its successor is made
            for group, index in PARTS:
                self.create(group, index)

    def start_all(self) -> None:
        self.create_all()
        self.settle()
        for _ in range(8):  # those whose pods went while no engine led are found to be gone
            for number in reversed(range(len(self.waiting))):
                self.start(number)
            self.settle()

    def stop_all(self) -> None:
        for job in list(self.leases):
            if job in self.leases and job not in self.stopped:
                self.stop(job)
        self.settle()


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 50)), min_size=60, max_size=120))
@examples(100, 5000)
def test_gangs_are_bound_whole_to_leases_that_stand_and_every_stopped_lease_ends(
    history: list[tuple[str, int]],
) -> None:
    world = World()
    world.start_all()
    assert len(world.leases) == len(GANGS)
    for operation, number in history:
        world.do(operation, number)
    world.settle()
    world.stop_all()
    assert not world.leases, "a lease that was stopped has not ended"
    assert not world.api.holders()
    world.start_all()  # as if nothing had been
    bound = Counter(found["metadata"]["annotations"][names.HIVED_REQUEST] for found in world.api.holders())
    assert bound == Counter(f"{group}:{size}" for group, sizes in GANGS.items() for size in sizes)
