"""The Trainer of transformers with one callback: `python examples/huggingface_trainer.py --dir /tmp/huggingface`."""

from __future__ import annotations

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from goodput.huggingface import GoodputCallback

parser = argparse.ArgumentParser()
parser.add_argument("--dir", required=True, help="where checkpoints are kept")
options = parser.parse_args()

torch.manual_seed(0)
tokens = torch.randint(64, (64, 16))
data = [{"input_ids": row, "labels": row} for row in tokens]
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=options.dir,
        use_cpu=True,
        max_steps=12,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=6,
        save_steps=6,
        logging_steps=6,
        report_to=[],
        disable_tqdm=True,
    ),
    train_dataset=data,
    eval_dataset=data[:8],
    callbacks=[GoodputCallback(run="huggingface-trainer")],  # the one line
)
trainer.train()
