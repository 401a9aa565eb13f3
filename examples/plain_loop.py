"""A plain PyTorch loop, watched by one line: `python examples/plain_loop.py --dir /tmp/plain --steps 40`.

Run it again with more steps, and it goes on from its last save.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import goodput.torch

parser = argparse.ArgumentParser()
parser.add_argument("--dir", type=Path, required=True, help="where the checkpoint is kept")
parser.add_argument("--steps", type=int, default=40, help="step after which the training ends")
options = parser.parse_args()
options.dir.mkdir(parents=True, exist_ok=True)
path = options.dir / "last.pt"

torch.manual_seed(0)
x = torch.randn(256, 16)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

rec = goodput.torch.watch(model, optimizer, run="plain-loop")  # the one line

step = 0
if path.exists():
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]

while step < options.steps:
    for features, target in loader:
        loss = nn.functional.mse_loss(model(features), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 20 == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
        if step == options.steps:
            break
    model.eval()
    with torch.no_grad():
        print(f"step {step} loss {nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)):.3f}")
    model.train()

rec.finish()
