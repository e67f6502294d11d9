"""The simulator against reality: real jobs under a real service, and the same trace simulated."""
