"""The optimisation problems that policies state, and the algorithms that solve them."""
