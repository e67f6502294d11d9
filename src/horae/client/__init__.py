"""The Python client of the service.

import horae

with horae.Client() as client:
    (job,) = client.submit({"name": "bert", "run": "python train.py", "gpus": 2})
    print(client.wait(job).state)
"""

from horae.client.client import Client

__all__ = ["Client"]
