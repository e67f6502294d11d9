"""A Kubernetes cluster in which anything may happen at any time: every promise holds after every step."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from kubernetes_model.history import STEP_KINDS, drive
from kubernetes_model.real_scheduler import RealScheduler
from world import Violation

from horae.engines.kubernetes import engine, reconcile
from horae.engines.kubernetes.gangs import Gang, Gangs
from horae.engines.kubernetes.objects import PodObject

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
FIRST_SEED = 1_000_000 * int(os.environ.get("HORAE_SEED", "0"))
SLICES = 100 if NIGHTLY else 1
HISTORIES = 100  # in a slice


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("slice_", range(SLICES))
def test_every_promise_holds_after_every_step(slice_: int) -> None:
    first = FIRST_SEED + slice_ * HISTORIES
    served: Counter[str] = Counter()
    for seed in range(first, first + HISTORIES):
        served.update(drive(seed).served)
    assert served.keys() == STEP_KINDS.keys()


@pytest.mark.parametrize("slice_", range(SLICES))
def test_the_scheduler_gets_along_with_a_cluster_in_which_anything_may_happen(slice_: int) -> None:
    first = FIRST_SEED + slice_ * HISTORIES
    for seed in range(first, first + (HISTORIES if NIGHTLY else 30)):
        drive(seed, scheduler=RealScheduler)


# Ways to break a promise, each of which must be found out.


def binds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are placed before all of their gang exist."""
    monkeypatch.setattr(reconcile, "places_of", _first_place(reconcile.places_of))


def _first_place(places_of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda gpus, pod_gpus: places_of(gpus, pod_gpus)[:1]


def ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is reported to have ended while its pods terminate."""
    monkeypatch.setattr(reconcile.Pods, "live", property(lambda pods: []))


def takes_nothing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader does not fence the former one."""
    monkeypatch.setattr(engine.KubernetesEngine, "_take_over", lambda self, gang, found: None)


def forgets_what_it_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which GPUs bound pods have is not known."""

    def place(self: Gang, pod: PodObject) -> None: ...

    monkeypatch.setattr(Gang, "_place", place)


def ignores_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs of foreign pods are told to be free."""
    monkeypatch.setattr(Gangs, "_note_foreign", lambda self, pod: None)


@pytest.mark.parametrize(
    "sabotage", [ends_early, forgets_what_it_bound, ignores_others, takes_nothing_over, binds_at_once]
)
def test_a_broken_promise_is_found(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(200):
            drive(seed)
