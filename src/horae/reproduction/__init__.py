"""Published experiments, run again: their set-up, the runs, what was published, and whether both agree."""
