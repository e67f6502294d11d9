"""Compare policies on the same jobs; differences are relative to the first."""

import horae
from horae import samples

cluster = horae.load_cluster(samples.CLUSTER, cadence="events")
jobs = horae.load_jobs(samples.JOBS, cluster)
result = horae.compare(cluster, jobs, ["fifo", "fifo={backfill: true}", "sjf", "srtf"])
print(result.to_markdown())
print(result.frame.select("policy", "completion_mean_seconds", "preemptions"))
