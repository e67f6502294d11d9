"""`horae demo`: the service on an emulated cluster, with a stream of small training jobs, for two minutes."""
