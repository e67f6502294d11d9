UNFAIR_ABOVE = 1.0  # a larger rho is worse than a share of one's own
