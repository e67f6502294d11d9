"""Policies: they decide which jobs of a pool get GPUs. One file each; `horae.model.view` defines their input.

`check_policy` is the conformance suite: every built-in policy passes it, and every external policy must.
"""

from horae.policies.conformance import PolicyFault, check_policy
from horae.policies.registry import POLICIES, find_policy, make_policy

__all__ = ["check_policy", "PolicyFault", "POLICIES", "find_policy", "make_policy"]
