"""Policies: who in a pool gets its GPUs. One file each; see `horae.model.view` for what they are told.

`check_policy` is the conformance suite: every policy of ours passes it, and so must every policy of yours.
"""

from horae.policies.conformance import PolicyFault, check_policy
from horae.policies.registry import POLICIES, find_policy, make_policy

__all__ = ["check_policy", "PolicyFault", "POLICIES", "find_policy", "make_policy"]
