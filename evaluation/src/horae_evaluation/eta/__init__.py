"""How good `horae eta` and `horae plan` are: at sampled moments of histories, beside what happened next."""
