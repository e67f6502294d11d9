"""Write a journal, read it again, and ask why a job waited."""

from pathlib import Path
from tempfile import TemporaryDirectory

import horae
from horae import samples

cluster = horae.load_cluster(samples.CLUSTER)
jobs = horae.load_jobs(samples.JOBS, cluster)
with TemporaryDirectory() as folder:
    path = Path(folder) / "run.jsonl"
    horae.simulate(cluster, jobs, "fifo", journal=path)
    found = horae.Journal(path).explain("nlp-188", at=18 * 3600.0)
    print(f"{found.explanation.job_id}: {found.explanation.reason}")
    for seconds, line in found.story:
        print(f"{seconds / 3600:8.2f} h  {line}")
