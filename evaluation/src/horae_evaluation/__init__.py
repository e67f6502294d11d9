"""Reproductions of published experiments: `horae reproduce`."""
