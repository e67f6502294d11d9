"""What would become of a job if it were submitted now."""

from __future__ import annotations

from dataclasses import dataclass

from horae.model.cells import Gpu
from horae.model.reasons import Reason
from horae.model.shapes import Shape


@dataclass(frozen=True)
class Prospect:
    """Would this job start now, and at whose cost?"""

    starts: bool  # at once; otherwise see `victims` and `reason`
    guaranteed: bool = False  # in its tenant's cells, or in a pool that reserves none
    gpus: tuple[Gpu, ...] = ()  # that it has, or that are held for it
    shape: Shape | None = None
    victims: tuple[str, ...] = ()  # jobs that would be stopped for it
    downgraded: tuple[str, ...] = ()  # jobs that would go on without a guarantee
    reason: Reason | None = None  # why it would wait or be refused
