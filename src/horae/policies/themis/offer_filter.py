"""The apps, or tenants, that receive an offer of Themis (NSDI'20, section 4): those that are worst off.

Receiving an offer is an advantage, so apps must not be able to claim it: the arbiter's own estimates decide, not
self-reported values. An agent's answer counts in the auction, where a lie is costly, but not for the offer. Where
entitlement is by tenant, so are offers: all apps of a tenant count as one, with their average rho, so that splitting an
app brings no more offers.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.view import View
from horae.policies.themis.valuation import AuctionLedger

HIDDEN_SHARE = 0.8  # the fraction f of apps, the best off, that see no offer
_HAIR = 1e-9


def seated(candidates: Ints, rho: Floats, f: float, owner: Ints | None = None) -> tuple[Ints, Ints]:
    """These apps, worst first, split into those that receive the offer and the others; by owner, if given."""
    order = candidates[np.lexsort((candidates, -rho[candidates]))]
    if owner is None:
        visible = _count(f, len(order))
        return order[:visible], order[visible:]
    owners, mine = np.unique(owner[order], return_inverse=True)
    badness = np.bincount(mine, rho[order], len(owners)) / np.bincount(mine, minlength=len(owners))
    worst = np.lexsort((owners, -badness))[: _count(f, len(owners))]
    sees = np.isin(mine, worst)
    return order[sees], order[~sees]


def weights(view: View, books: AuctionLedger) -> Floats:
    """By app: its part of its tenant's weight, so that the apps of a tenant together bid as much as one would."""
    tenant = owners(view, books)
    return view.tenant_weight[tenant] / np.bincount(tenant, minlength=len(view.tenants))[tenant]


def owners(view: View, books: AuctionLedger) -> Ints:
    """By app: its tenant."""
    return view.jobs.tenant[books.row[books.first[:-1]]]


def _count(f: float, seats: int) -> int:
    return max(ceil((1 - f) * seats - _HAIR), 1)
