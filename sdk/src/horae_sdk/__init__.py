"""What a training script needs to be preempted, resumed and observed by Horae.

    import horae_sdk as horae

    run = horae.init()
    model, start = load(run.checkpoint) if run.resumed else (fresh(), 0)
    for step, batch in run.steps(loader, start=start, total=10_000):
        loss = train(model, batch)
        run.report(loss=loss)
        if run.checkpoint_due():
            save(model, step, run.checkpoint_dir)
            run.saved(step)

The same script runs without Horae: checkpoints are then in `./checkpoints`, and nothing is reported.
"""

from horae_sdk._run import PREEMPTED, Run, init
from horae_sdk._version import __version__

__all__ = ["init", "Run", "PREEMPTED", "__version__"]
