"""Who sees an offer of Themis (NSDI'20, section 4): the apps that are worst off, or the tenants.

A seat is worth having, so nobody may talk himself into one. By the arbiter's own books an agent's word counts in the
auction, where a lie costs, and not for the seat. Where entitlement is by tenant, seats are, too: all apps of a tenant
sit on one, and are as badly off as they are on average, so that several see no more than one would.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.view import View
from horae.policies.themis.valuation import Books

_HAIR = 1e-9


def seated(candidates: Ints, rho: Floats, f: float, owner: Ints | None = None) -> tuple[Ints, Ints]:
    """These apps, worst first, as those who see the offer and the others; with owners, by those."""
    order = candidates[np.lexsort((candidates, -rho[candidates]))]
    if owner is None:
        visible = _count(f, len(order))
        return order[:visible], order[visible:]
    owners, mine = np.unique(owner[order], return_inverse=True)
    badness = np.bincount(mine, rho[order], len(owners)) / np.bincount(mine, minlength=len(owners))
    worst = np.lexsort((owners, -badness))[: _count(f, len(owners))]
    sees = np.isin(mine, worst)
    return order[sees], order[~sees]


def weights(view: View, books: Books) -> Floats:
    """By app: its part of its tenant's weight, so that the apps of a tenant bid as loud together as one would."""
    tenant = owners(view, books)
    return view.tenant_weight[tenant] / np.bincount(tenant, minlength=len(view.tenants))[tenant]


def owners(view: View, books: Books) -> Ints:
    """By app: its tenant."""
    return view.jobs.tenant[books.row[books.first[:-1]]]


def _count(f: float, seats: int) -> int:
    return max(ceil((1 - f) * seats - _HAIR), 1)
