"""Train a small network with PyTorch: preempted and resumed, it ends with the loss of an uninterrupted run.

To be run by hand where PyTorch is installed: it is no dependency of Horae, and no test runs this file.

    python pytorch_mlp.py --steps 2000 --pace 0.01

Interrupt it with `kill PID` and start it again: it resumes from ./checkpoints. Delete that folder to start anew.
Exactly the same loss needs the same type of GPU: other types add up numbers in another order.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import horae_sdk as horae
import torch
from torch import Tensor, nn

FEATURES, HIDDEN, BATCH = 16, 32, 64


def batches(seed: int, start: int, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of the steps after `start`: inputs, and the function of them that the network learns."""
    step = start
    while True:
        step += 1
        # Drawn on the CPU, whose random numbers are the same on every machine.
        x = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(seed * 1_000_003 + step)).to(device)
        yield x, torch.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network with PyTorch.")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="sleep after each step")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS", help="between two checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    run = horae.init(every=options.every)
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    start = 0
    if run.checkpoint:
        state = torch.load(run.checkpoint / "state.pt", map_location=device)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        start = state["step"]
    print(f"from step {start} on {run.environment.gpu_type or device}", flush=True)

    for step, (x, y) in run.steps(batches(options.seed, start, device), start=start, total=options.steps):
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        run.report(loss=loss)
        if run.checkpoint_due() or step == options.steps:
            state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}
            torch.save(state, run.checkpoint_dir / "state.pt")
            run.saved(step)
            print(f"saved step {step}, loss {loss.item():.6f}", flush=True)
        time.sleep(options.pace)

    with torch.no_grad():
        x, y = next(batches(options.seed, -1, device))  # which no step has seen
        print(f"final loss {nn.functional.mse_loss(model(x), y).item()!r}")


if __name__ == "__main__":
    main()
