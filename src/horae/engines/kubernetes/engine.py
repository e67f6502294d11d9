"""The Kubernetes engine: commands become Jobs with pods on nodes, and what happens to these becomes events.

Threads watch the cluster and carry actions out; everything else, above all what to do next for each gang, is decided by
the thread that calls `wait` and `execute`.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from math import inf
from typing import NamedTuple

import structlog

from horae.engines.engine import Moment
from horae.engines.kubernetes import names
from horae.engines.kubernetes.actions import (
    Action,
    Bind,
    Delete,
    Explain,
    GiveUp,
    PutOutOfService,
    Suspend,
    Touch,
    Unsuspend,
    claim,
)
from horae.engines.kubernetes.alarm import Alarm
from horae.engines.kubernetes.api import (
    CONFLICT,
    JOBS,
    NAMESPACES,
    NODES,
    NOT_FOUND,
    PODS,
    ApiProblem,
    Json,
    Kind,
    KubernetesApi,
)
from horae.engines.kubernetes.gangs import Gang, Subject, Surroundings
from horae.engines.kubernetes.hardware import Labels
from horae.engines.kubernetes.informer import Change, Informer, News, Synced
from horae.engines.kubernetes.nodes import Nodes
from horae.engines.kubernetes.objects import JobObject, LeaseNote, PodObject, read_namespace
from horae.engines.kubernetes.pod_gangs import NO_PODS, PodGangs, PodRules
from horae.engines.kubernetes.reconcile import Report
from horae.engines.kubernetes.remarks import Remark
from horae.engines.kubernetes.writers import Done, OnLog, Writers
from horae.model.cluster import Cluster, Gpu
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import (
    Ending,
    Event,
    GpuState,
    Health,
    JobEnded,
    JobPhase,
    JobProgressed,
    JobStarted,
    Phase,
    Running,
    Surveyed,
)
from horae.model.serialization import Plain

WATCHED = (NODES, NAMESPACES, JOBS, PODS)
UNREACHABLE_SECONDS = 300.0
RETRY_SECONDS = (0.05, 0.2, 1.0, 2.0, 5.0)
LOGS_MAX = 4  # pods of a gang whose output is kept when they are deleted
REFUSED_RETRY_SECONDS = 30.0  # of an action that the server refuses: a right is missing, or a policy forbids it

log = structlog.get_logger("kubernetes")


class Found(NamedTuple):
    """A Job that is new, or pods without one."""

    job: Subject
    raw: Json  # of a Job
    tenants: tuple[str, ...]  # that its namespace may use; the first is the default
    nodes_with: Callable[[Mapping[str, str]], list[str]]  # names of the nodes that have these labels


class KubernetesEngine:
    def __init__(
        self,
        api: KubernetesApi,
        cluster: Cluster,
        now: Callable[[], float],
        *,
        term: int,
        type_of: Callable[[str], str],
        labels: Labels | None = None,
        scheduler: str = names.SCHEDULER,
        unreachable_seconds: float = UNREACHABLE_SECONDS,
        executor: Executor | None = None,
        pods: PodRules = NO_PODS,
        on_log: OnLog = lambda job_id, epoch, pod, text: None,
    ) -> None:
        """`executor` carries actions out; without one, threads do. `pods`: what to do with pods without a Job. `on_log`
        is called, in any thread, with the end of the output of pods that are about to be deleted."""
        self._api = api
        self._now = now
        self._term = term
        self._gangs = PodGangs(scheduler, pods)
        self._nodes = Nodes(cluster, labels or Labels(), type_of, unreachable_seconds, is_fixed=bool(pods.nodes))
        self._news: queue.SimpleQueue[list[News] | Done] = queue.SimpleQueue()
        self._alarm = Alarm()
        self._writers = Writers(api, executor, self._is_done, on_log)
        self._dirty: dict[str, None] = {}  # gangs to be reconciled, in order
        self._retry_at: dict[str, float] = {}  # by gang
        self._events: list[Event] = []
        self._early: list[Command] = []  # given before everything was listed
        self._found: dict[str, None] = {}  # gangs to be shown to the service
        self._gone: dict[str, str] = {}  # jobs whose Job is gone, with the reason
        self._unrecorded: list[Gang] = []  # that are over; told with the events of the last `wait`
        self._unsynced: set[Kind] = set(WATCHED)
        self._tenants: dict[str, tuple[str, ...]] = {}  # by namespace
        self._namespaces: dict[str, str] = {}  # by uid
        self._touching = 0  # writes by which this leader takes over
        self._again: dict[str, list[Touch]] = {}  # those that have failed, by gang: nothing goes on there before
        self._survey_asked = False
        self._informers: list[Informer] = []

    def start(self, leads: Callable[[], bool] = lambda: True) -> None:
        """Begins to watch the cluster; nothing is told to the scheduler before everything was listed.

        `leads` is asked before every write: a process that was stopped for long and goes on may not lead any more, and
        would otherwise decide by what its watches tell, before it learns of its successor.
        """
        self._writers.leads = leads
        self._informers = [Informer(self._api, kind, self.tell) for kind in WATCHED]
        for informer in self._informers:
            informer.start()

    def close(self) -> None:
        """Leaves everything running, for the next engine."""
        for informer in self._informers:
            informer.stop()
        self._writers.close()
        self._alarm.close()
        self._api.close()

    # Waking

    def wake(self) -> None:
        """Interrupts a wait, from any thread or from a signal handler."""
        self._alarm.wake()

    def watch(self, descriptor: int) -> None:
        """Lets `wait` return whenever this descriptor is readable, too."""
        self._alarm.watch(descriptor)

    def tell(self, news: list[News]) -> None:
        """Takes what a watch has seen, from any thread."""
        self._news.put(news)
        self._alarm.ring()

    def _is_done(self, done: Done) -> None:
        self._news.put(done)
        self._alarm.ring()

    # What the service asks and tells

    @property
    def is_synced(self) -> bool:
        return not self._unsynced and not self._touching

    @property
    def is_running(self) -> bool:
        return any(gang.is_on_gpus for gang in self._gangs) or bool(self._events)

    def believe(self, cluster: Cluster, health: Mapping[str, Health], gpus: Mapping[Gpu, GpuState]) -> None:
        """What the scheduler holds for true about the hardware, when it begins."""
        self._nodes.believe(cluster, health, gpus)

    def take_found(self) -> list[Found]:
        """Jobs that are new: the service submits each, and then calls `register`."""
        shown, self._found = list(self._found), {}
        gangs = [gang for uid in shown if (gang := self._gangs.get(uid)) is not None]
        return [
            Found(subject, gang.raw, self._tenants.get(subject.namespace, ()), self._nodes.with_labels)
            for gang in gangs
            if not gang.is_registered and (subject := gang.subject) is not None
        ]

    def take_gone(self) -> dict[str, str]:
        """Jobs that ended in the cluster while they had no lease, with the reason: the service cancels them."""
        gone, self._gone = self._gone, {}
        return gone

    def register(self, job_id: str, uid: str) -> None:
        """A Job was submitted under this id, which is noted on it."""
        self._touch(self._gangs.register(job_id, uid))

    def put_back(self, found: Sequence[Found], gone: Mapping[str, str]) -> None:
        """The service could not take these now: they come again."""
        self._gone = {**gone, **self._gone}
        for each in found:
            gang = self._gangs.get(each.job.uid)
            if gang is not None and not gang.is_registered:
                gang.shown_as = None
                self._retry_at[gang.uid] = self._now() + RETRY_SECONDS[-1]

    def expect(self, job_id: str, uid: str, specification: Plain) -> None:
        """Tells what a service that finds this job running needs to adopt it; kept with its lease."""
        self._gangs.register(job_id, uid).specification = specification

    def specification(self, job_id: str) -> Plain | None:
        gang = self._gangs.by_job.get(job_id)
        return None if gang is None or gang.lease is None else gang.lease.specification

    def forget(self, job_id: str) -> None:
        gang = self._gangs.by_job.get(job_id)
        if gang is None:
            return
        job = gang.job
        if job is not None and not job.is_over and gang.told_end >= 0 and gang.ended_as is Ending.FAILED:
            self._submit(gang, GiveUp(job))
        else:
            for action in gang.annotate({names.RECORDED: "true"}):
                self._submit(gang, action)
        self._gangs.forget(gang)

    def waiting(self) -> list[str]:
        """The jobs that have no lease, and are not to get one yet."""
        return [
            gang.job_id
            for gang in self._gangs
            if gang.job_id and gang.job is not None and not gang.job.is_over and not gang.gpus
        ]

    def explain(self, job_id: str, message: str, *, waits: bool = True) -> None:
        """Shows on the Job why it waits, or how it has ended for Horae."""
        gang = self._gangs.by_job.get(job_id)
        if gang is not None and gang.job is not None and not gang.job.is_over and gang.job.waits_for != message:
            self._submit(None, Explain(gang.job, message, waits))

    def remark(self, about: Subject, remark: Remark) -> None:
        """Shows the owner of a Job or of pods what is wrong with it, as an event of Kubernetes."""
        self._writers.remark(about, remark)

    def stop_all(self) -> None:
        """Stops all gangs; their ends are reported by `wait`."""
        for gang in self._gangs:
            if gang.is_on_gpus or gang.wanted.lease is not None:
                self._stop(gang, max(gang.epoch, -1 if gang.wanted.lease is None else gang.wanted.lease.epoch))

    # The protocol of all engines

    def wait(self, until: float) -> Moment | None:
        """The next events. What earlier calls returned counts as received."""
        self._record_ends()
        while True:
            self._take_news()
            now = self._now()
            events = self._take_events(now)
            if events or self._alarm.is_woken or self._found or self._gone or now >= until:
                self._alarm.is_woken = False
                return Moment(now, events)
            due_at = min(until, min(self._retry_at.values(), default=inf), self._nodes.next_at(now))
            self._alarm.wait(due_at - now)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        if not self.is_synced:  # a lease that is not seen may well run, or a former leader may be about to start it
            self._early += commands
            return []
        return self._carry_out(commands)

    def _carry_out(self, commands: Sequence[Command]) -> list[Event]:
        replies: list[Event] = []
        for command in commands:
            match command:
                case Start():
                    replies += self._start(command)
                case Stop():
                    replies += self._stop_job(command)
                case Survey():
                    self._survey_asked = True
        self._reconcile_all(self._now())
        events = [*replies, *self._take_survey(self._now())]
        return [*self._nodes.events(self._gangs, self._now()), *events] if events else []  # GPUs of others first

    def _take_news(self) -> None:
        while True:
            try:
                news = self._news.get_nowait()
            except queue.Empty:
                return
            if isinstance(news, Done):
                self._take_result(news)
                continue
            for each in news:
                if isinstance(each, Change):
                    self._apply(each)
                else:
                    self._synced(each)

    def _take_events(self, now: float) -> list[Event]:
        if self._unsynced:
            return []
        for uid, at in list(self._retry_at.items()):
            if at <= now:
                del self._retry_at[uid]
                self._dirty[uid] = None
                for touch in self._again.pop(uid, ()):
                    self._submit(self._gangs.get(uid), touch)
        early: list[Command] = []
        if self.is_synced:
            early, self._early = self._early, early
        self._events += self._carry_out(early)
        hardware = self._nodes.events(self._gangs, now)
        for action in self._nodes.actions(self._has_pods_on, now):
            self._submit(None, action)
        survey = self._take_survey(now)
        events, self._events = [*hardware, *self._events, *survey], []
        return events

    def _has_pods_on(self, node: str) -> bool:
        return any(pod.node == node and not pod.is_terminal for gang in self._gangs for pod in gang.pods.values())

    # News from the cluster

    def _apply(self, change: Change) -> None:
        kind, key, found, is_listed = change
        if kind == NODES:
            self._nodes.apply(key, found)
            for gang in self._gangs if found is None else ():
                self._touch(gang)  # its pods may be on the node that is gone
            return
        if kind == NAMESPACES:
            self._apply_namespace(key, found)
            return
        changed = self._gangs.apply(kind, key, found, is_listed=is_listed)
        if changed is not None:
            self._touch(changed)

    def _apply_namespace(self, key: str, found: Json | None) -> None:
        if found is None:
            name = self._namespaces.pop(key, "")
            if name not in self._namespaces.values():  # another of this name may have been listed before
                self._tenants.pop(name, None)
            return
        namespace = read_namespace(found)
        self._namespaces[key] = namespace.name
        if self._tenants.get(namespace.name) != namespace.tenants:
            self._tenants[namespace.name] = namespace.tenants
            for gang in self._gangs:  # what was refused may be accepted now
                if gang.namespace == namespace.name:
                    gang.shown_as = None
                    self._touch(gang)

    def _touch(self, gang: Gang) -> None:
        self._dirty[gang.uid] = None

    def _synced(self, synced: Synced) -> None:
        self._unsynced.discard(synced.kind)
        if self._unsynced or self._has_taken_over:
            return
        self._has_taken_over = True
        self._gangs.adopt()
        for gang in self._gangs:
            for found in gang.fenced:
                self._take_over(gang, found)

    _has_taken_over = False

    def _take_over(self, gang: Gang, found: JobObject | PodObject) -> None:
        """Writes this leader's term, so that writes of the former one that are under way fail."""
        self._touching += 1
        self._submit(gang, Touch(found, self._term))

    # Reconciling

    def _reconcile_all(self, now: float) -> None:
        if not self.is_synced:
            return
        while self._dirty:
            uid = next(iter(self._dirty))
            del self._dirty[uid]
            found = self._gangs.get(uid)
            if found is not None and not found.in_flight and uid not in self._retry_at and uid not in self._again:
                self._reconcile(found, now)

    def _reconcile(self, gang: Gang, now: float) -> None:
        if gang.is_absent:
            self._vanished(gang, now)
            return
        if gang.is_to_be_shown:
            gang.show()
            self._found[gang.uid] = None
        terms = [each.term for each in (gang.job, *gang.pods.values()) if each is not None]
        if max(terms, default=-1) > self._term:
            return  # another process leads since, and this one has not noticed yet
        if (job := gang.job) is not None and gang.job_id and job.job_id != gang.job_id and not job.is_over:
            self._submit(gang, claim(job, gang.job_id))  # first, so that a survey can name its lease
            return
        for pod, problem in gang.take_problems():
            self.remark(pod, Remark("Rejected", problem, is_warning=True))
        step = gang.step(Surroundings(self._term, self._nodes.lost, self._nodes.cell_sizes))
        for report in step.reports:
            self._report(gang, report, now)
        if step.remark and gang.job is not None:
            self.remark(gang.job, Remark("Suspended", step.remark, is_warning=True))
        for action in step.actions:
            self._act(gang, action)
        if gang.job is not None and (gang.job.is_over or gang.job.is_deleting):
            self._is_over(gang, gang.job)
        self._leave(gang)

    def _act(self, gang: Gang, action: Action) -> None:
        match action:
            case Bind():
                gang.begin(action)
            case Suspend(job):
                self._before_suspension(gang, job, action)
            case Unsuspend(job) if job.waits_for:
                self._submit(None, Explain(job, "", waits=False))
            case Delete(pod) if gang.job_id and pod.phase != "Pending":
                self._writers.keep_output(gang.job_id, gang.epoch, pod)
        self._submit(gang, action)

    def _leave(self, gang: Gang) -> None:
        """Pods without a Job that were replaced by others are a new job; the service cancels the former one."""
        job_id = gang.job_id
        reason = gang.left()
        if gang.job_id != job_id:
            self._gangs.release(job_id, gang)
            self._touch(gang)
        if reason:
            self._gone[job_id] = reason

    def _before_suspension(self, gang: Gang, job: JobObject, action: Suspend) -> None:
        """The pods will be deleted: what they have written is kept, and the owner is told why."""
        if action.ended is not None and action.ended.message:
            self.remark(job, Remark("LeaseEnded", action.ended.message, is_warning=True))
        if gang.job_id and action.ended is not None:
            wrote = [pod for pod in gang.pods.values() if pod.phase != "Pending" and pod.epoch == action.ended.epoch]
            for pod in sorted(wrote, key=lambda pod: (pod.phase != "Failed", pod.rank))[:LOGS_MAX]:
                self._writers.keep_output(gang.job_id, action.ended.epoch, pod)

    def _vanished(self, gang: Gang, now: float) -> None:
        """The Job is gone: its lease ends with the last of its pods."""
        epochs = [gang.wanted.stopped, gang.told_phase[0] if gang.told_phase else -1]
        epochs.append(-1 if gang.wanted.lease is None else gang.wanted.lease.epoch)
        last = max(epochs)
        is_left = any(pod.epoch in (last, -1) and not pod.is_terminal for pod in gang.pods.values())
        if last >= 0 and not is_left:
            self._report(gang, Report(last, None, Ending.STOPPED, gang.saved_steps, "its Job was deleted"), now)
        if gang.job_id:
            self._gone[gang.job_id] = "its Job was deleted from the cluster"

    def _is_over(self, gang: Gang, job: JobObject) -> None:
        if job.is_deleting:
            if gang.job_id:
                self._gone[gang.job_id] = "its Job was deleted from the cluster"
        elif gang.job_id and not job.is_recorded:
            if job.failed and gang.wanted.lease is None and gang.told_end < 0:
                self._gone[gang.job_id] = f"its Job has failed: {job.failure}"
            self._unrecorded.append(gang)

    def _record_ends(self) -> None:
        """The events of the last `wait` are in the log: Jobs that are over need not be reported again."""
        over, self._unrecorded = self._unrecorded, []
        for gang in over:
            for action in gang.annotate({names.RECORDED: "true"}):
                self._submit(gang, action)

    def _report(self, gang: Gang, report: Report, now: float) -> None:
        if not gang.job_id:
            return
        if report.steps > gang.told_steps and report.ending is None:
            gang.told_steps = report.steps
            self._events.append(JobProgressed(now, gang.job_id, report.epoch, report.steps))
        if not gang.is_news(report):
            return
        if report.ending is not None:
            gang.ended_as = report.ending
            lease = gang.wanted.lease
            if lease is not None and lease.epoch <= report.epoch:
                gang.wanted = gang.wanted._replace(lease=None)
            ended = JobEnded(now, gang.job_id, report.epoch, report.ending, report.steps, report.message)
            self._events.append(ended)
        elif report.phase is Phase.RUNNING:
            self._events.append(JobStarted(now, gang.job_id, report.epoch))
        elif report.phase is not None:
            self._events.append(JobPhase(now, gang.job_id, report.epoch, report.phase))

    # Commands

    def _start(self, command: Start) -> list[Event]:
        now = self._now()
        gang = self._gangs.find(command.job_ids[0], command.epoch)
        if len(command.job_ids) > 1:
            message = "on Kubernetes two jobs cannot share GPUs"
            return [JobEnded(now, each, command.epoch, Ending.LOST, 0.0, message) for each in command.job_ids]
        if gang is not None and gang.is_absent and gang.has_live_pods:
            self._stop(gang, command.epoch)  # its Job was deleted, and it ends with the last of its pods
            return []
        if gang is None or gang.is_absent:
            if gang is not None:
                gang.wanted = gang.wanted._replace(lease=None)
            self._gone[command.job_ids[0]] = "its Job is not in the cluster"  # it was deleted while no service ran
            message = "its Job is not in the cluster"
            return [JobEnded(now, command.job_ids[0], command.epoch, Ending.LOST, 0.0, message)]
        if gang.epoch == command.epoch:
            gang.told_phase = None  # what runs is reported again
        if gang.wanted.lease is None or gang.wanted.lease.epoch < command.epoch:
            lease = LeaseNote(
                self._term,
                command.epoch,
                command.gpus,
                command.cells,
                command.lease_until,
                gang.specification,
                gang.job_id,
            )
            gang.wanted = gang.wanted._replace(lease=lease)
            gang.told_steps = command.steps_done[0]
        self._touch(gang)
        return []

    def _stop_job(self, command: Stop) -> list[Event]:
        gang = self._gangs.find(command.job_id, command.epoch)
        if gang is None:
            return [JobEnded(self._now(), command.job_id, command.epoch, Ending.STOPPED, 0.0)]
        self._stop(gang, command.epoch)
        if gang.told_end >= command.epoch:  # the message was lost, or the command is an old one
            gang.told_end = command.epoch - 1
        return []

    def _stop(self, gang: Gang, epoch: int) -> None:
        lease = gang.wanted.lease
        gang.wanted = gang.wanted._replace(
            lease=None if lease is None or lease.epoch <= epoch else lease, stopped=max(gang.wanted.stopped, epoch)
        )
        self._touch(gang)

    def _take_survey(self, now: float) -> list[Event]:
        """What runs, once everything has been listed and this leader has taken over."""
        if not self._survey_asked or not self.is_synced:
            return []
        self._survey_asked = False
        running = [
            Running(gang.job_id, lease.epoch, lease.gpus, gang.saved_steps, _phase(gang), lease.cells)
            for gang in self._gangs
            if gang.is_on_gpus and gang.job_id and (lease := gang.lease) is not None
        ]
        ends, self._events = self._events, []
        running.sort(key=lambda run: (run.epoch, run.job_id))
        return [*ends, Surveyed(now, tuple(running))]

    # Actions

    def _submit(self, gang: Gang | None, action: Action) -> None:
        if gang is not None:
            gang.in_flight += 1
        self._writers.carry_out("" if gang is None else gang.uid, action)

    def _take_result(self, done: Done) -> None:
        action, problem = done.action, done.problem
        gang = self._gangs.get(done.uid) if done.uid else None
        if isinstance(action, Touch):
            self._touched(gang, action, problem)
        if isinstance(action, PutOutOfService) and problem is not None:
            self._nodes.unmark(action.node)
        if isinstance(action, Bind) and gang is not None:
            gang.bound(action, problem)
        if problem is not None:
            self._failed(gang, action, problem)
        if gang is None:
            return
        gang.in_flight -= 1
        self._gangs.drop_if_empty(gang)
        if problem is None:
            gang.failures = 0
        if done.found is not None:
            # What was asked for after a conflict counts even if it is older: the cluster may have been set back.
            self._take_object(done.found, is_listed=problem is not None)
        self._touch(gang)

    def _take_object(self, found: Json, *, is_listed: bool) -> None:
        """Takes an answer over, unless the watch has told since that the object is gone."""
        uid = found.get("metadata", {}).get("uid", "")
        if found.get("kind") == "Job" and (known := self._gangs.get(uid)) is not None and known.job is not None:
            self._gangs.apply(JOBS, uid, found, is_listed=is_listed)
        elif found.get("kind") == "Pod" and self._gangs.has_pod(uid):
            self._gangs.apply(PODS, uid, found, is_listed=is_listed)

    def _touched(self, gang: Gang | None, action: Touch, problem: ApiProblem | None) -> None:
        if problem is not None and problem.is_temporary and gang is not None:
            self._again.setdefault(gang.uid, []).append(action)  # the former leader may still write
            return
        self._touching -= 1

    def _failed(self, gang: Gang | None, action: Action, problem: ApiProblem) -> None:
        if gang is None and problem.status in (NOT_FOUND, CONFLICT):
            return
        if gang is None:
            log.warning("an action failed", action=type(action).__name__, problem=str(problem))
            return
        gang.failures += 1
        pause = RETRY_SECONDS[min(gang.failures, len(RETRY_SECONDS)) - 1]
        # After a conflict, and when the object is gone, the watch will tell what to do; if it does not, try again.
        if not problem.is_temporary and problem.status not in (NOT_FOUND, CONFLICT):
            pause = REFUSED_RETRY_SECONDS
            log.error("the API server refuses an action", action=type(action).__name__, problem=str(problem))
        self._retry_at[gang.uid] = self._now() + pause


def _phase(gang: Gang) -> Phase:
    told = gang.told_phase
    return told[1] if told is not None and told[0] == gang.epoch else Phase.STARTING
