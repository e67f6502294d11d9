"""Horae shares one GPU cluster between teams that train deep-learning models."""

__version__ = "0.1.0"
