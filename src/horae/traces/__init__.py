"""Workloads, clusters and speeds as files."""

BROKEN_MAX = 0.05  # the fraction of broken rows from which a result would mislead
