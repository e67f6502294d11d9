"""The kubelets of all simulated nodes (label `horae.test/simulated=true`), in one process.

They enforce what real ones do: a pod for which its node has no room is rejected, a pod that is told to stop takes its
time, and the API server learns what has happened when it can be reached. They also check what the API server alone
would accept: no GPU is given to two pods, and no Job runs in two epochs (`checker.py`).

    python -m kubernetes.kubelets KUBECONFIG --violations violations.jsonl --scale 0.01

Annotations of pods (those of training may also be on the Job):

| annotation | meaning |
|---|---|
| `horae.test/starts-after` | seconds until the container runs, instead of 5 to 120 times `--scale` |
| `horae.test/stops-after` | seconds from SIGTERM to the end, instead of up to the grace times `--scale` |
| `horae.test/fails-after`, `horae.test/exit-code` | the container ends after these seconds, with this code (1) |
| `horae.test/work` | the pod is a member of a gang that trains: see `training.py` |
| `horae.io/steps`, `horae.io/speed` | of that training: `H100=3.1;A100=1.4` in steps per second of the whole gang |
| `horae.test/real` | `true`: the command of the first container is run as a process |

Seconds in annotations are as they are: `--scale` is for times that are drawn. An image whose name contains `missing`
cannot be pulled. A node with the annotation `horae.test/broken` is cut off: it is not ready (`Unknown` as a value makes
its condition unknown), its pods are not served, and its gangs do not advance; without the annotation it is back.
"""
