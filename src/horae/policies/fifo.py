"""First in, first out: nobody starts before those who came earlier, unless backfilling is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from horae.model.decisions import Ranking
from horae.model.view import View


@dataclass(frozen=True)
class Fifo:
    name: ClassVar[str] = "fifo"
    backfill: bool = False  # let later jobs pass a head that does not fit

    def decide(self, view: View) -> Ranking:
        waiting = view.jobs.pending.nonzero()[0]
        return Ranking(waiting[view.jobs.serial[waiting].argsort()], blocking=not self.backfill)
