"""A story told to the product and to the reference, which must agree in every figure."""

from __future__ import annotations

from typing import Any

from comparing import differences, product_report
from loading import loaded

from reference.stories import Story, at


def told(story: Story, *, now: float | None = None) -> dict[str, Any]:
    """The product's report, once it is sure that the reference's says the same."""
    now_ns = None if now is None else at(now)
    with loaded(story.events) as con:
        report = product_report(con, story.run, now_ns=now_ns)
    assert differences(report, story.report(now_ns=now_ns)) == []
    return report
