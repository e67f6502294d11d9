"""Plots of the tenants' waiting times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from horae_evaluation.hived.rows import TenantRow

COLOURS = {"private": "#7f7f7f", "quota": "#d95f02", "cells": "#1b9e77"}


def draw(rows: Sequence[TenantRow], path: Path) -> None:
    """Draws one panel per workload, policy and affinity, with three bars per tenant."""
    panels = list(dict.fromkeys((row.workload, row.policy, row.affinity, row.placement) for row in rows))
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 2.6 * len(panels)), squeeze=False)
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        mine = [row for row in rows if (row.workload, row.policy, row.affinity, row.placement) == panel]
        place = np.arange(len(mine))
        for offset, (kind, colour) in enumerate(COLOURS.items()):
            waits = [getattr(row, kind).queueing_mean_seconds / 60 for row in mine]
            axis.bar(place + 0.27 * (offset - 1), waits, 0.25, label=kind, color=colour)
        axis.set_xticks(place, [row.tenant for row in mine])
        axis.set_title(f"{panel[0]}, {panel[1]}, {panel[2]} affinity, quota: {panel[3]}", fontsize=10)
        axis.set_ylabel("mean queueing (min)")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False, ncols=3)
    figure.tight_layout()
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)
