"""The names that Horae uses in the cluster: labels, annotations, and the name of the scheduler."""

from __future__ import annotations

PREFIX = "horae.io/"
SCHEDULER = "horae"
GPU_RESOURCE = "nvidia.com/gpu"

TENANT = PREFIX + "tenant"  # label of a namespace; annotation of a Job
TENANTS = PREFIX + "tenants"  # annotation of a namespace: more tenants, among which a Job may choose
IGNORE = PREFIX + "ignore"  # label of a node that is not for Horae

JOB = PREFIX + "job"  # of a Job: its id here
UID = PREFIX + "uid"  # of a Job: its uid; with another one, the annotations below were copied from another Job
LEASE = PREFIX + "lease"  # of a Job: the lease that it has, or had last, as JSON
ENDED = PREFIX + "ended"  # of a Job: the last lease that has ended or shall end, as JSON
RECORDED = PREFIX + "recorded"  # of a Job that has ended: the service knows it
GANG = PREFIX + "gang"  # of a pod without a Job: which pods were submitted together
WAITING = PREFIX + "Waiting"  # a condition of a Job, with the reason for which it waits

EPOCH = PREFIX + "epoch"  # of a pod
TERM = PREFIX + "term"  # of a pod, and of a Job: which leader has written it last
GPUS = PREFIX + "gpus"  # of a pod: the numbers of its GPUs within the node
CELLS = PREFIX + "cells"  # of a pod: the levels of the cells that hold its GPUs
SAVED_STEPS = PREFIX + "saved-steps"  # of a pod, by the job; of a Job, what the last lease had saved

_HIVED = "hivedscheduler.microsoft.com/"
HIVED_REQUEST = _HIVED + "pod-scheduling-spec"  # of a pod: what it asks HiveD for
HIVED_PLACEMENT = _HIVED + "pod-bind-info"  # of a pod, by the binding: where its gang is
HIVED_GPUS = _HIVED + "pod-leaf-cell-isolation"  # of a pod, by the binding: its GPUs, as its container is told them
