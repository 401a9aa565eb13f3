"""A loop written with Accelerate, watched by one line: `python examples/accelerate_loop.py --dir /tmp/accelerate`."""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import goodput.torch

parser = argparse.ArgumentParser()
parser.add_argument("--dir", required=True, help="where the checkpoint is kept")
options = parser.parse_args()

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
torch.manual_seed(0)
x = torch.randn(256, 16)
model = nn.Linear(16, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

rec = goodput.torch.watch(model, optimizer, run="accelerate-loop")  # the one line: what `prepare` gave

for epoch in range(2):
    for features, target in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(features), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.save_state(options.dir)
    accelerator.print(f"epoch {epoch} loss {loss.item():.3f}")

rec.finish()
