"""The four baselines of Themis' evaluation (NSDI'20, section 8), in the form in which it ran them.

Every app reports one scalar, GPUs go greedily to the best, and a winner has its gang for the length of a lease; see
`app_greedy.py`. The policies after which they are named decide by other rules, which Themis' evaluation did not use.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.decisions import Grants
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.elastic.loss_curves import loss_drop
from horae_evaluation.themis.app_greedy import by_app, field_of, greedy, longest_first
from horae_evaluation.themis.best_placement import best_placements_first

LEASE_SECONDS = 1200.0
_FIRST = 1e12  # seconds per GPU: more than any app with GPUs can gain


def _check_lease(seconds: float) -> None:
    if not 0 < seconds < inf:
        raise PolicyError(f"a lease of {seconds} seconds", field="lease_seconds", remedy="give a positive number")


@dataclass(frozen=True)
class ThemisTiresias:
    """Tiresias in Themis' evaluation: gang by gang to the app with the fewest GPU-seconds so far.

    Ended jobs of an app count with the service in their reference shapes, because their actual service is not recorded;
    with nothing where one was of unknown length.
    """

    name: ClassVar[str] = "themis-tiresias"
    uses_lengths: ClassVar[bool] = True
    lease_seconds: float = LEASE_SECONDS

    def __post_init__(self) -> None:
        _check_lease(self.lease_seconds)

    def decide(self, view: View) -> Grants:
        jobs, field = view.jobs, field_of(view)
        live = by_app(view, field, jobs.service_gpu_seconds)
        ended = view.app.gpu_seconds[field.apps] - by_app(view, field, jobs.gpus * jobs.seconds_total)
        served = (live + np.maximum(np.nan_to_num(ended, nan=0.0, neginf=0.0), 0.0)).tolist()
        return greedy(view, field, lambda app, gpus, gang, row: -served[app], longest_first(view), self.lease_seconds)


@dataclass(frozen=True)
class ThemisOptimus:
    """Optimus in Themis' evaluation: gang by gang to the app whose remaining time falls most per GPU.

    That is W/w - W/(w + g) over g, with W the GPU-seconds left of its jobs, w its GPUs and g its next gang. Apps
    without GPUs come first, the one with the most work per GPU of its gang before the others.
    """

    name: ClassVar[str] = "themis-optimus"
    uses_lengths: ClassVar[bool] = True
    lease_seconds: float = LEASE_SECONDS

    def __post_init__(self) -> None:
        _check_lease(self.lease_seconds)

    def decide(self, view: View) -> Grants:
        jobs, field = view.jobs, field_of(view)
        # A job of unknown length is assumed to run for as long as it has so far.
        left = np.where(np.isfinite(jobs.seconds_left), jobs.seconds_left, jobs.run_seconds + 1.0)
        work: list[float] = by_app(view, field, jobs.gpus * left).tolist()

        def gain(app: int, gpus: float, gang: int, row: int) -> float:
            if not gpus:
                return _FIRST + work[app] / gang
            return work[app] / (gpus * (gpus + gang))

        return greedy(view, field, gain, longest_first(view), self.lease_seconds)


@dataclass(frozen=True)
class ThemisSlaq:
    """SLAQ in Themis' evaluation: gang by gang to the app of which a job's loss falls most in the coming lease.

    That job gets the gang.
    """

    name: ClassVar[str] = "themis-slaq"
    uses_lengths: ClassVar[bool] = True
    lease_seconds: float = LEASE_SECONDS

    def __post_init__(self) -> None:
        _check_lease(self.lease_seconds)

    def decide(self, view: View) -> Grants:
        jobs, field = view.jobs, field_of(view)
        option = np.where(jobs.running, jobs.option, 0)
        speed = jobs.speed[np.arange(len(jobs)), option]
        drop = loss_drop(jobs, speed[:, None], self.lease_seconds)[:, 0]
        order = np.lexsort((jobs.serial, ~jobs.running, -drop))
        drops: list[float] = drop.tolist()
        return greedy(view, field, lambda app, gpus, gang, row: drops[row], order, self.lease_seconds)


@dataclass(frozen=True)
class ThemisGandiva:
    """Gandiva in Themis' evaluation: to the app whose next gang can be placed most tightly; see `best_placement.py`."""

    name: ClassVar[str] = "themis-gandiva"
    lease_seconds: float = LEASE_SECONDS

    def __post_init__(self) -> None:
        _check_lease(self.lease_seconds)

    def decide(self, view: View) -> Grants:
        return best_placements_first(view, self.lease_seconds)
