"""Train a small network with NumPy: preempted and resumed, it ends with exactly the loss of an uninterrupted run.

Three things make it exact: the batch of a step depends on the seed and the step only, the state of the optimiser is
part of the checkpoint, and numbers are saved as they are.

    python numpy_mlp.py --steps 2000 --pace 0.01

Interrupt it with `kill PID` and start it again: it resumes from ./checkpoints. Delete that folder to start anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import horae_sdk as horae
import numpy as np

FEATURES, HIDDEN, BATCH = 16, 32, 64
State = dict[str, np.ndarray]  # weights, and for each its two moments of Adam


def fresh(seed: int) -> State:
    random = np.random.default_rng([seed, 0])
    weights = {
        "first": random.normal(size=(FEATURES, HIDDEN)) / np.sqrt(FEATURES),
        "second": random.normal(size=(HIDDEN, 1)) / np.sqrt(HIDDEN),
    }
    moments = {f"{name}.{moment}": np.zeros_like(w) for name, w in weights.items() for moment in ("mean", "square")}
    return {**weights, **moments}


def batches(seed: int, start: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batches of the steps after `start`: inputs, and the function of them that the network learns."""
    step = start
    while True:
        step += 1
        x = np.random.default_rng([seed, step]).normal(size=(BATCH, FEATURES))
        yield x, np.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]


def train(state: State, step: int, x: np.ndarray, y: np.ndarray) -> float:
    """One step of Adam; returns the loss before it."""
    hidden = np.tanh(x @ state["first"])
    error = hidden @ state["second"] - y
    back = 2.0 * error / len(x)
    gradients = {
        "first": x.T @ ((back @ state["second"].T) * (1.0 - hidden**2)),
        "second": hidden.T @ back,
    }
    for name, gradient in gradients.items():
        mean, square = state[f"{name}.mean"], state[f"{name}.square"]
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient**2 - square)
        state[name] -= 0.003 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return float(np.mean(error**2))


def save(state: State, step: int, folder: Path) -> None:
    np.savez(folder / "state.npz", step=step, **state)


def load(folder: Path) -> tuple[State, int]:
    with np.load(folder / "state.npz") as file:
        arrays = dict(file)
    return arrays, int(arrays.pop("step"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network with NumPy.")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="sleep after each step")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS", help="between two checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    run = horae.init(every=options.every)
    state, start = load(run.checkpoint) if run.checkpoint else (fresh(options.seed), 0)
    print(f"from step {start} on {run.environment.gpu_type or 'this machine'}", flush=True)
    for step, (x, y) in run.steps(batches(options.seed, start), start=start, total=options.steps):
        loss = train(state, step, x, y)
        run.report(loss=loss)
        if run.checkpoint_due() or step == options.steps:
            save(state, step, run.checkpoint_dir)
            run.saved(step)
            print(f"saved step {step}, loss {loss:.6f}", flush=True)
        time.sleep(options.pace)
    x, y = next(batches(options.seed, -1))  # which no step has seen
    loss = float(np.mean((np.tanh(x @ state["first"]) @ state["second"] - y) ** 2))
    print(f"final loss {loss!r}")


if __name__ == "__main__":
    main()
