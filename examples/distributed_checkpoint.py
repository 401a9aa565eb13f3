"""FSDP2 with asynchronous distributed checkpoints, watched by two lines, on the CPU:

torchrun --standalone --nproc-per-node 2 examples/distributed_checkpoint.py --dir /tmp/fsdp
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

import goodput.dcp
import goodput.torch

parser = argparse.ArgumentParser()
parser.add_argument("--dir", type=Path, required=True, help="where checkpoints are kept")
options = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

# What is saved in the background speaks in a group of its own: in the training's, the two would mix.
group = dist.new_group(backend="gloo")

rec = goodput.torch.watch(model, optimizer, run="distributed-checkpoint")  # steps, input, evaluation, plain saves
goodput.dcp.watch()  # distributed saves and loads

saving = None
for step in range(1, 31):
    x = torch.randn(16, 16)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        if saving is not None:
            saving.result()  # where the loop waits for the save before, it is blocked by it
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        saving = dcp.async_save(state, checkpoint_id=options.dir / f"step-{step}", process_group=group)
if saving is not None:
    saving.result()

rec.finish()
# Leave together and without the interpreter's own shutdown, which can abort in a torn-down process group.
dist.barrier()
dist.destroy_process_group()
os._exit(0)
