"""A sample cluster, workload and record of usage, so that everything can be tried without any data."""

from pathlib import Path

CLUSTER = Path(__file__).with_name("lab.yaml")
JOBS = Path(__file__).with_name("jobs.csv")
USAGE = Path(__file__).with_name("usage.csv")
