"""The optimisation behind policies: classes of equal jobs, linear programs, and proofs of how good an answer is."""
