"""A sample cluster, workload, record of usage and accounting of Slurm's: everything can be tried without data."""

from pathlib import Path

CLUSTER = Path(__file__).with_name("lab.yaml")
JOBS = Path(__file__).with_name("jobs.csv")
USAGE = Path(__file__).with_name("usage.csv")
ACCOUNTING = Path(__file__).with_name("sacct.txt")  # made by tools/make_sacct_sample.py
