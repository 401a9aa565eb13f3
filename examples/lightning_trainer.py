"""Lightning with one callback: `python examples/lightning_trainer.py --dir /tmp/lightning`."""

from __future__ import annotations

import argparse

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from goodput.lightning import GoodputCallback


class Sum(pl.LightningModule):
    """Learns to add."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(16, 1)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        self.log("loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


parser = argparse.ArgumentParser()
parser.add_argument("--dir", required=True, help="where checkpoints are kept")
options = parser.parse_args()

pl.seed_everything(0)
x = torch.randn(320, 16)
data = TensorDataset(x, x.sum(1, keepdim=True))
trainer = pl.Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=2,
    accumulate_grad_batches=2,
    default_root_dir=options.dir,
    logger=False,
    enable_progress_bar=False,
    callbacks=[
        GoodputCallback(run="lightning-trainer"),  # the one line
        ModelCheckpoint(options.dir, every_n_train_steps=8, save_top_k=-1),
    ],
)
trainer.fit(Sum(), DataLoader(data, batch_size=16), DataLoader(data, batch_size=64))
