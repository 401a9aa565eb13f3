"""Records where the time of a training process goes.

    rec = goodput.start(run="llama-7b")
    for step, batch in enumerate(rec.data(loader), start=1):
        with rec.step(step):
            train(batch)
        if step % 50 == 0:
            with rec.checkpoint(step):
                save()
    rec.finish()

Importing it starts no thread, opens no file and loads nothing but the standard library.
"""

from goodput.noop import NoopRecorder
from goodput.protocol import Recorder, StepHandle
from goodput.starting import start

__all__ = ["NoopRecorder", "Recorder", "StepHandle", "start"]
