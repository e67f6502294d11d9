"""The worked example of the Themis paper (NSDI'20, section 4), an app that searches by successive halving.

Four jobs of 80, 100, 100 and 120 s per iteration and GPU make 8 iterations each. Two of them make 16 more and one of
these 36 more, which are estimated with the median job: 100 s per iteration. Each job may have 8 GPUs. The cluster has
16 GPUs and four apps.
"""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from builders import cluster
from views import gang, view_of

from horae.policies.themis.valuation import AuctionTerms, bid, open_books, option_of, prospects

PHASES = ((640.0, 800.0, 800.0, 960.0), (1600.0, 1600.0), (3600.0,))  # seconds of each job on one GPU
LATER_GPU_SECONDS = sum(map(sum, PHASES[1:]))
LATER_SECONDS = sum(map(max, PHASES[1:])) / 8


@pytest.mark.parametrize("to_the_end", [False, True])
def test_the_bid_of_the_worked_example_comes_out_exactly(to_the_end: bool) -> None:
    """With a quarter of the cluster, to which it is entitled: 960 + 800 + 900 s, and T_id = 10,000 / 16 x 4 s."""
    jobs = [gang(f"j{number}", "search", 1, seconds) for number, seconds in enumerate(PHASES[0])]
    view = view_of(cluster(nodes=1, gpus=16), jobs)
    later = view.app._replace(
        gpus_max=np.array([4 * 8]),
        later_gpu_seconds=np.array([LATER_GPU_SECONDS]),
        later_seconds=np.array([LATER_SECONDS]),
    )
    view = view._replace(app=later, apps=4)
    terms = AuctionTerms(1200.0, aim="paper", to_the_end=to_the_end)
    books = open_books(view, terms)
    bids, _ = bid(books, prospects(view, books, terms, option_of(view, books)), terms, np.arange(1))
    rho = {int(gpus): exp(-value) for gpus, value in zip(bids.gpus, bids.value, strict=True)}
    assert books.ideal_seconds.tolist() == [2500.0]
    assert rho[4] * 2500.0 == pytest.approx(2660.0)
    assert rho[4] == pytest.approx(1.064, abs=1e-12)
