"""Slow and obviously right; nothing here calls what it is compared with."""
