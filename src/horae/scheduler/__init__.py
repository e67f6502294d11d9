"""The pure core: `Scheduler.handle(event)` returns commands.

It has no clock, no files, and no knowledge of its engine.
"""

from horae.model.plans import Reaction
from horae.scheduler.core import Scheduler

__all__ = ["Reaction", "Scheduler"]
