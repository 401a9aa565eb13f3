"""Steps of a loop that says nothing, from the hooks of its optimizer."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from types import FrameType
from typing import Any

from goodput._adapters import guard, harmless, plain_float, span_open
from goodput._checkpoint_content import Weights, has_state, named_step, optimizer_steps
from goodput._data_wait import data_wait_of
from goodput.guard import warn_once
from goodput.recorder import LiveRecorder

_FAKE_UPDATE = "_init_optim_state"
"""torch.distributed.checkpoint's function that fills an empty optimizer by an update with learning rate 0."""


class StepWatch:
    """What one recorder learns from one optimizer (or several that belong to one step) and from the model's mode.

    The step ends with the update of the last optimizer. It begins where the first batch after the step before was
    waited for; in a loop where no loader is seen, right where the step before ended. A loop that tells its steps
    itself is left to it.

    Args:
        optimizers: those of one step, the last one being the one that ends it; empty: the first that steps.
        model: the model, None when it is not known.
        evaluations: the time from `model.eval()` to `model.train()` is evaluation.

    Attributes:
        chosen: it was told which optimizers to watch.
        on_first_step: called once, after the first step.
        closing: called by `close`.
    """

    def __init__(
        self,
        rec: LiveRecorder,
        *,
        optimizers: Sequence[Any] = (),
        model: Any = None,
        evaluations: bool = True,
    ) -> None:
        self.rec = rec
        # What is watched may go when its owner lets go of it.
        self._optimizers = [weakref.ref(optimizer) for optimizer in optimizers]
        self._model = None if model is None else weakref.ref(model)
        self.chosen = bool(self._optimizers)
        self._evaluations = evaluations
        self.on_first_step: Callable[[], None] | None = None
        self.closing: list[Callable[[], None]] = []
        self._waits = data_wait_of(rec)
        self._waits.came = self._input_came
        self._seen_resumes = 0
        self._done = 0
        self._life_steps = 0
        self._skipped = 0
        self._begun_ns: int | None = None
        self._stale_ns: int | None = None
        self._fed = False
        self._fake = False
        self._stood_down = False
        self._evaluation: int | None = None
        self._trains_in_eval = False
        self._lr: float | None = None
        self._loaded = False
        self._loaded_step: int | None = None
        # The optimizer may be called on a thread of autograd's; saves and loads that block the loop are on this one.
        self._thread = get_ident()

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers of a step that are still there."""
        return [optimizer for optimizer in (ref() for ref in self._optimizers) if optimizer is not None]

    @property
    def model(self) -> Any:
        """The model, None where it is not known or gone."""
        return None if self._model is None else self._model()

    def parameters(self) -> list[Any]:
        """What the optimizers train."""
        return [p for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]]

    def stand_down(self) -> None:
        """Tell no steps from now on: somebody else does."""
        self._stood_down = True

    def close(self) -> None:
        """Watch no longer."""
        while self.closing:
            self.closing.pop()()

    # -- the optimizer -------------------------------------------------------------------------------------------

    # The next two are called in each step, with caches that the model has just emptied: few calls, in few places.

    def before_update(self, optimizer: Any, *_: Any) -> None:
        """The optimizer's hook before an update."""
        try:
            if not self._concerns(optimizer):
                return
            groups = optimizer.param_groups
            lr = groups[0].get("lr") if groups else None
            self._lr = lr if type(lr) is float else plain_float(lr)
            if self._lr == 0.0:
                self._fake = _called_by(_FAKE_UPDATE)
                if self._fake:
                    return
            if self._evaluation is not None:
                # Only training updates weights: this model trains in the mode in which others evaluate.
                self._end_evaluation()
                self._trains_in_eval = True
            self._reach_update()
        except Exception as error:
            guard.caught("the beginning of an update could not be recorded", error)

    def after_update(self, optimizer: Any, *_: Any) -> None:
        """The optimizer's hook after an update."""
        try:
            if not self._concerns(optimizer):
                return
            if self._fake:
                self._fake = False
                return
            if not self._ends_step(optimizer):
                return
            found_inf = getattr(optimizer, "found_inf", None)
            self._complete(applied=found_inf is None or not plain_float(found_inf))
        except Exception as error:
            guard.caught("a step could not be recorded", error)

    @harmless("a skipped update could not be recorded")
    def skipped(self, optimizer: Any) -> None:
        """A loss scaler left this update out."""
        if not self._concerns(optimizer) or not self._ends_step(optimizer):
            return
        self._lr = plain_float(optimizer.param_groups[0].get("lr"))
        self._reach_update()
        self._skipped += 1
        self._complete(applied=False)

    @harmless("the restored step could not be read")
    def restored(self, optimizer: Any) -> None:
        """An optimizer's state was loaded: the training goes on from there."""
        if not self._concerns(optimizer):
            return
        step = optimizer_steps(optimizer)
        if step is None:
            step = self._loaded_step
        if step is None and not self._loaded and not has_state(optimizer):
            return  # an optimizer as it was built, which a framework moves to its device
        if step is None:
            warn_once(
                "resume step unknown",
                "a checkpoint was loaded that does not tell its step: give goodput.torch.watch(step=...), or call "
                "resumed(step) of what it returns",
            )
            return
        self._look_for_resume()
        if self._life_steps and step + self._skipped == self._done:
            return  # the present state, put back
        self.rec.resumed(step or None)

    def find_restored(self) -> None:
        """Look at what was loaded before the watch began."""
        for optimizer in self.optimizers:
            if has_state(optimizer):
                self.restored(optimizer)
                return

    # -- the model -----------------------------------------------------------------------------------------------

    @harmless("the model's mode could not be followed")
    def mode(self, module: Any, training: bool) -> None:
        """`module.train(training)` was called, and it is no part of another one that is being switched."""
        if not self._evaluations or self._trains_in_eval or not self.rec.active or not self._is_model(module):
            return
        if training:
            self._end_evaluation()
        elif self._evaluation is None and span_open(self.rec) != "evaluation":
            self._evaluation = self.rec.begin_span("evaluation", step=self.last_step)

    def saving(self, saved: object) -> AbstractContextManager[None] | None:
        """Around a save of this object on this thread; None when it is no checkpoint, or declared already."""
        if not self.rec.active or self._thread != get_ident() or span_open(self.rec) == "checkpoint":
            return None
        if not Weights(self.model, self.optimizers).in_(saved):
            return None
        return self.rec.checkpoint(self.last_step)

    def saving_all(self) -> AbstractContextManager[None] | None:
        """Around a framework's own save of everything."""
        return None if span_open(self.rec) == "checkpoint" else self.rec.checkpoint(self.last_step)

    def loading(self) -> AbstractContextManager[None] | None:
        """Around a load; None when it is not on the way to the first step."""
        if self.rec.steps.done is not None or not self.rec.active or self._thread != get_ident():
            return None
        return None if span_open(self.rec) is not None else self.rec.span("load_checkpoint")

    @harmless("a loaded checkpoint could not be looked at")
    def loaded(self, what: object) -> None:
        """This was loaded."""
        self._loaded = True
        step = named_step(what)
        if step is not None:
            self._loaded_step = step

    @property
    def last_step(self) -> int:
        """The last step that was done, in this process or before it."""
        self._look_for_resume()
        return self._done

    # -- steps ---------------------------------------------------------------------------------------------------

    def _concerns(self, optimizer: Any) -> bool:
        if self._stood_down or self.rec.ended_ns is not None:
            return False
        there = False
        for ref in self._optimizers:
            known = ref()
            if known is optimizer:
                return True
            there = there or known is not None
        if there:
            return False
        # The first that does anything ends the steps from now on.
        self._optimizers = [weakref.ref(optimizer)]
        return True

    def _ends_step(self, optimizer: Any) -> bool:
        for ref in reversed(self._optimizers):
            known = ref()
            if known is not None:
                return known is optimizer
        return False

    def _is_model(self, module: Any) -> bool:
        model = self.model
        while model is not None:
            if model is module:
                return True
            model = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
        if self.model is not None:
            return False
        trained = {id(parameter) for parameter in self.parameters()}
        held = sum(id(parameter) in trained for parameter in module.parameters())
        # A part that is frozen is not the model.
        return bool(held) and 2 * held >= len(trained)

    def _look_for_resume(self) -> None:
        """Go on from where the recorder was told, by us or by the loop."""
        if self.rec.resumes != self._seen_resumes:
            self._seen_resumes = self.rec.resumes
            self._done = self.rec.resumed_step or 0
            self._life_steps = self._skipped = 0
            # A step that was begun before is none: it is begun anew.
            self._stale_ns, self._begun_ns = self._begun_ns, None

    def _begin(self) -> None:
        rec = self.rec
        if rec.resumes != self._seen_resumes:
            self._look_for_resume()
        self._begun_ns = rec.steps.at(self._done + 1).__enter__().started_ns
        if not rec.resumes:
            # Said inside the step: before it, the recorder would forget the wait for the first batch.
            rec.resumed(None)
            self._seen_resumes = rec.resumes

    def _input_came(self) -> None:
        self._fed = True
        # While no optimizer is known it may be no training at all.
        if not (self.rec.steps.open or self._stood_down) and any(ref() is not None for ref in self._optimizers):
            self._begin()

    def _reach_update(self) -> None:
        """Have a step open, from where it really began."""
        steps = self.rec.steps
        if self.rec.resumes != self._seen_resumes:
            self._look_for_resume()
        if steps.open and steps.started_ns == self._begun_ns:
            return
        if steps.open and steps.started_ns != self._stale_ns:
            # The loop tells its steps itself.
            self.stand_down()
            return
        began = self._waits.begun_ns
        first = self._life_steps == 0
        self._begin()
        if began is not None or not first:
            since = steps.ended_ns if began is None else max(began, steps.ended_ns)
            steps.started_ns = self._begun_ns = min(steps.started_ns, since)

    def _complete(self, *, applied: bool) -> None:
        steps = self.rec.steps
        if not (steps.open and steps.started_ns == self._begun_ns):
            return  # not the one that was begun here
        steps.note(lr=self._lr, applied=applied)
        steps.__exit__(None, None, None)
        self._done += 1
        self._life_steps += 1
        self._begun_ns = self._waits.begun_ns = None
        if self.on_first_step is not None:
            call, self.on_first_step = self.on_first_step, None
            call()
        if not self._fed:
            self._begin()

    def _end_evaluation(self) -> None:
        if self._evaluation is not None:
            span, self._evaluation = self._evaluation, None
            self.rec.end_span(span)


def _called_by(name: str) -> bool:
    """A function of this name is among the callers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False
