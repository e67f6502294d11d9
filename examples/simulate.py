"""Simulate one policy on a job table and plot completion times."""

import polars as pl

import horae
from horae import samples

cluster = horae.load_cluster(samples.CLUSTER)
jobs = horae.load_jobs(samples.JOBS, cluster)
result = horae.simulate(cluster, jobs, "las")
print(result.jobs.group_by("tenant").agg(pl.mean("completion_seconds")).sort("tenant"))
result.plots()["completion"].savefig("completion.png")
