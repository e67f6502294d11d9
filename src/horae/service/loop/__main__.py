"""The process of the loop: `python -m horae.service.loop CONFIG`. It waits until it leads, recovers, and runs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

import structlog
from sqlalchemy import Engine as Database

from horae.engines.kubernetes.engine import KubernetesEngine
from horae.engines.kubernetes.pod_gangs import PodRules
from horae.engines.local.engine import LocalEngine
from horae.engines.local.fence import Fenced, term_on_record
from horae.engines.local.job_files import highest_number
from horae.engines.local.nvml import load as load_nvml
from horae.engines.local.nvml import type_of
from horae.model.cluster import Cluster
from horae.model.errors import HoraeError, InputError
from horae.model.serialization import from_plain
from horae.model.setup import Setup
from horae.model.setup_changes import changes
from horae.scheduler.gpu_ledger import GpuLedger
from horae.service.api.context import context_of
from horae.service.api.tokens import job_token
from horae.service.child import end_with_starter
from horae.service.clock import LogClock
from horae.service.config import ARCHIVE, ServiceConfig, load_config
from horae.service.kubernetes.discovery import Records, nodes_of, open_api, records_of
from horae.service.kubernetes.intake import Intake
from horae.service.kubernetes.leader_label import label_own_pod
from horae.service.kubernetes.machine import KubernetesJobs
from horae.service.kubernetes.outputs import Outputs
from horae.service.kubernetes.pod_specs import read_request
from horae.service.local_jobs import LocalJobs, runs_as_root
from horae.service.log_output import configure_log
from horae.service.loop.live_engine import LiveEngine
from horae.service.loop.loop import CONFIGURED, Loop
from horae.service.loop.patience import Patience
from horae.service.loop.questions import Questions
from horae.service.loop.recovery import begin, rebuild
from horae.service.store.archive import Archive
from horae.service.store.database import TermEnded, open_database, writing
from horae.service.store.leadership import Leadership, Observer, Renewal, confirm_lead, raise_term, resign, take_lead
from horae.service.store.log import get_meta, raise_counter
from horae.service.store.migrate import migrate

POLL_SECONDS = 0.2
RENEW_SECONDS = 1.0
EMBEDDED_RENEW_SECONDS = 60.0  # the lock on the state folder is what keeps others away
UPGRADE_SECONDS = 3600.0  # for one statement: large tables may be rewritten
LOCKED, USAGE_ERROR, TERM_ENDED = 3, 2, 4

log = structlog.get_logger("loop")


class Machine(LiveEngine, Protocol):
    """What this process needs of an engine besides what the loop needs."""

    @property
    def is_running(self) -> bool: ...

    def wake(self) -> None: ...

    def set_cluster(self, cluster: Cluster) -> None: ...

    def begin(self, hardware: GpuLedger, leads: Callable[[], bool]) -> None: ...

    def stop_all(self) -> None: ...

    def close(self) -> None: ...


Contact = Callable[[str, int], Mapping[str, str]]  # how the lease of a job reaches the API: its environment
MachineOf = Callable[[ServiceConfig, LogClock, int, Contact], Machine]


def local_machine(config: ServiceConfig, clock: LogClock, term: int, contact: Contact) -> Machine:
    nvml = None if config.emulated else load_nvml()
    folder = config.state / "engine"
    engine = LocalEngine(config.setup.cluster, folder, clock.now, term=term, contact=contact, nvml=nvml)
    return LocalJobs(engine, as_submitter=runs_as_root())


def kubernetes_machine(config: ServiceConfig, clock: LogClock, term: int, contact: Contact) -> Machine:
    engine = KubernetesEngine(
        open_api(config.kubernetes),
        config.setup.cluster,
        clock.now,
        term=term,
        type_of=type_of,
        labels=config.kubernetes.labels,
        scheduler=config.kubernetes.scheduler,
        unreachable_seconds=config.kubernetes.unreachable,
        pods=PodRules(read_request, config.hived),
        on_log=Outputs(config.state).keep,
    )
    label_own_pod(config.kubernetes)
    return KubernetesJobs(engine, Intake(open_database(config.store), context_of(config)), clock.now)


def machine_for(config: ServiceConfig, clock: LogClock, term: int, contact: Contact) -> Machine:
    return (kubernetes_machine if config.engine == "kubernetes" else local_machine)(config, clock, term, contact)


def _records(config: ServiceConfig) -> Records:
    """What earlier services have left at the engine: its highest numbers."""
    if config.engine == "kubernetes":
        return records_of(open_api(config.kubernetes))
    folder = config.state / "engine"
    return Records(term_on_record(folder), highest_number(folder))


def main(path: Path, machine_of: MachineOf = machine_for) -> int:
    end_with_starter()
    configure_log()
    config = load_config(path)
    lock = _lock(config.state) if config.is_embedded else None
    if config.is_embedded and lock is None:
        return LOCKED
    try:
        _upgrade(config)
        _run(path, config, open_database(config.store), machine_of)
    except InputError as error:
        print(f"horae: {error}", file=sys.stderr)
        return USAGE_ERROR
    except (TermEnded, Fenced) as error:
        log.error("the lead is lost: this process changes nothing more and ends", error=str(error))
        return TERM_ENDED
    return 0


def _upgrade(config: ServiceConfig) -> None:
    """Brings the store to this version's schema; a leader of an older version is waited for."""
    database = open_database(config.store, UPGRADE_SECONDS)
    is_told = False
    while not migrate(database, at_once=config.is_embedded):
        if not is_told:
            log.warning("waits: the leader uses an older schema of the store")
        is_told = True
        time.sleep(POLL_SECONDS)
    database.dispose()


def _run(path: Path, config: ServiceConfig, database: Database, machine_of: MachineOf) -> None:
    lead = _lead(config, database)
    records = _records(config)
    leadership = raise_term(database, lead, records.term)
    config = _present(load_config(path))  # it may have changed while this process waited for its turn
    renewal = None if config.is_embedded else Renewal(database, leadership.term)
    clock = LogClock(leadership.last)
    rebuilt = rebuild(database)
    scheduler = begin(database, leadership, config.setup, clock) if rebuilt is None else rebuilt.scheduler
    scheduler.wait_for_bids(config.setup.bid_seconds)
    for problem in () if rebuilt is None else rebuilt.problems:
        log.error("a snapshot cannot be used", problem=problem)
    with writing(database) as connection:
        confirm_lead(connection, leadership.term, clock.read())
        raise_counter(connection, "jobs", records.job)
        secret = get_meta(connection, "secret") or ""
        former = get_meta(connection, CONFIGURED)
    before: Setup = scheduler.present_setup() if former is None else from_plain(Setup, json.loads(former))
    if config.engine == "kubernetes":
        before = replace(before, cluster=scheduler.present_setup().cluster)  # nodes are found, not configured
    url = f"http://{config.host}:{config.port}"

    def contact(job_id: str, epoch: int) -> Mapping[str, str]:
        return {"HORAE_URL": url, "HORAE_TOKEN": job_token(secret, job_id, epoch)}

    machine = machine_of(config, clock, leadership.term, contact)
    machine.begin(scheduler.ledger, lambda: renewal is None or renewal.is_fresh)
    questions = Questions(config.state)
    renew = EMBEDDED_RENEW_SECONDS if config.is_embedded else RENEW_SECONDS
    archive = Archive(database, config.state / ARCHIVE, leadership.term, clock, config.events_kept_seconds)
    seq = 0 if rebuilt is None else rebuilt.seq
    loop = Loop(database, leadership, scheduler, seq, machine, clock, questions, renew, archive.look, config.webhooks)

    loop.reload = partial(_reload, loop, machine)
    told = _listen(loop, machine)
    loop.restart(leadership.incarnation, changes(before, config.setup, clock.now()))
    loop.note_configured(config.setup)
    log.info("leads", term=leadership.term, events=0 if rebuilt is None else rebuilt.folded)
    print("ready", flush=True)
    loop.run()
    if told:
        machine.stop_all()
        loop.see_off(lambda: machine.is_running)
    loop.snapshot()
    loop.close()
    machine.close()
    if renewal is not None:
        renewal.close()
    resign(database, leadership.term)


def _present(config: ServiceConfig) -> ServiceConfig:
    """The same with the nodes that a cluster of Kubernetes has now; without any, those that it had."""
    nodes = nodes_of(config.kubernetes) if config.engine == "kubernetes" else ()
    if not nodes:
        return config
    cluster = replace(config.setup.cluster, nodes=tuple(nodes))
    return replace(config, setup=replace(config.setup, cluster=cluster))


def _reload(loop: Loop, machine: Machine, path: str) -> str:
    """Applies another configuration; returns why it cannot be."""
    config = load_config(Path(path))
    wanted = config.setup
    if config.engine == "kubernetes":
        loop.note_nodes()
    present = loop.scheduler.present_setup().cluster  # nodes that leave are there until their jobs have ended
    leaving = tuple(node for node in present.nodes if node.name not in wanted.cluster.node_index)
    machine.set_cluster(replace(wanted.cluster, nodes=(*wanted.cluster.nodes, *leaving)))
    return loop.change_setup(wanted)


def _listen(loop: Loop, machine: Machine) -> list[int]:
    """Ends the loop on a signal; the list that is returned has an entry once jobs shall be stopped, too."""
    told: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        loop.stopping = True
        machine.wake()

    def stop_jobs(number: int, frame: FrameType | None) -> None:
        told.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGUSR1, stop_jobs)
    return told


def _lead(config: ServiceConfig, database: Database) -> Leadership:
    """Waits until this process leads. With an embedded store it does at once, because it holds the lock."""
    holder = f"{socket.gethostname()}:{os.getpid()}"
    url = f"http://{config.host}:{config.port}"
    patiently, observer = Patience(lambda: None, lambda: False), Observer()
    while True:
        found = patiently(
            lambda: take_lead(database, holder, url, LogClock().read(), at_once=config.is_embedded, observer=observer)
        )
        if found is not None:
            return found
        time.sleep(POLL_SECONDS)


def _lock(state: Path) -> IO[str] | None:
    """The lock on the state folder, or None if another process has it. It is freed when this process ends."""
    file = (state / "loop.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except HoraeError as error:
        sys.exit(f"horae: {error}")
