"""The service: the same scheduler, driven by requests of users and by a live engine, with a durable log."""
