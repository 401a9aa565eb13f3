"""`goodput run` before trainings by a framework's trainer, of which no line names us."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from adapter_truth import Told
from run_commands import run_under

TRAINERS = {
    "huggingface": """
        import sys, torch
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
        data = [{"input_ids": row, "labels": row} for row in torch.randint(64, (64, 16))]
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
        )
        arguments = TrainingArguments(
            output_dir=sys.argv[1], use_cpu=True, max_steps=12, per_device_train_batch_size=4,
            gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=6, save_steps=6, logging_steps=6,
            report_to=[], disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:8]).train()
        """,
    "lightning": """
        import sys, torch
        from lightning.pytorch import LightningModule, Trainer
        from lightning.pytorch.callbacks import ModelCheckpoint

        class Module(LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)
            def training_step(self, batch, index):
                return self.layer(batch).pow(2).mean()
            def validation_step(self, batch, index):
                self.layer(batch)
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.01)

        batches = torch.utils.data.DataLoader(torch.randn(96, 4), batch_size=8)
        Trainer(
            default_root_dir=sys.argv[1], accelerator="cpu", devices=1, max_steps=12, val_check_interval=6,
            callbacks=[ModelCheckpoint(every_n_train_steps=6, save_top_k=-1)], logger=False, enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(Module(), batches, batches)
        """,
}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_that_knows_nothing_of_us_is_recorded_whole(trainer: str, spool: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(dedent(TRAINERS[trainer]))
    done = run_under([sys.executable, str(script), str(tmp_path / "out")], spool, "--run", "trainer")
    assert done.returncode == 0, done.stderr
    told = Told(spool)
    assert told.steps() == list(range(1, 13))
    assert [step for step, _, ok in told.spans("checkpoint") if ok] == [6, 12]
    assert [step for step, _, ok in told.spans("evaluation") if ok and step] == [6, 12]
    assert len(told.stops()) == 1


@pytest.mark.soak
def test_a_program_that_only_imports_a_trainer_is_no_training(spool: Path) -> None:
    done = run_under([sys.executable, "-c", "from transformers import Trainer; import lightning.pytorch"], spool)
    assert done.returncode == 0, done.stderr
    assert b"goodput: not seen: any training" in done.stderr
    assert not list(spool.glob("**/*.jsonl"))
