"""Forks: a copy of a scheduler's state, run forward in virtual time to answer questions about the future."""
