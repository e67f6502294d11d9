"""Published experiments, run again: `horae reproduce`."""
