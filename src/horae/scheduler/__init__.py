"""The pure core: `Scheduler.handle(event)` answers with commands. It has no clock, no files, no idea of its engine."""

from horae.model.plans import Reaction
from horae.scheduler.core import Scheduler

__all__ = ["Reaction", "Scheduler"]
