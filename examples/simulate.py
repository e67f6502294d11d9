"""Simulate one policy on a job table and plot completion times."""

import horae
from horae import samples

cluster = horae.load_cluster(samples.CLUSTER)
jobs = horae.load_jobs(samples.JOBS, cluster)
result = horae.simulate(cluster, jobs, "las")
print(result.jobs.group_by("tenant").mean().select("tenant", "completion_seconds"))
result.plots()["completion"].savefig("completion.png")
