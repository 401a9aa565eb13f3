"""What the figures of a run rest on."""

from __future__ import annotations

import streamlit as st

from goodput_analytics import Report
from goodput_dashboard import parts, words
from goodput_dashboard.figures import counted, duration, plain, unit_for


def body(report: Report) -> None:
    """The page below the run's head."""
    quality = report.quality
    unit = unit_for(report.allocated_gpu_s)
    rejected = sum(quality.rejected.values())
    flaws = {
        "conflicts": quality.conflicts,
        "rejected": rejected,
        "gaps": quality.gaps,
        "dropped": quality.dropped,
        "silent_ranks": len(quality.silent_ranks),
        "sources_without_start": quality.sources_without_start,
        "missing_steps": quality.missing_steps,
        "negative_durations": quality.negative_durations,
    }
    broken = [name.replace("_", " ") for name, count in flaws.items() if count]
    if not broken and not quality.assumed_gpu_s:
        st.success("All that was sent arrived, could be read, and says who it is from. Nothing had to be assumed.")
    elif broken:
        st.warning(f"Something is missing or broken: {', '.join(broken)}. What it means stands beside each figure.")
    if quality.assumed_gpu_s:
        st.info(
            f"{unit.amount(quality.assumed_gpu_s)} of {unit.amount(report.allocated_gpu_s)} rest on an assumption. "
            f"{words.QUALITY['assumed_gpu_s']} "
            "Load the scheduler's allocations and report checkpoints, and it goes away."
        )
    told = [
        ("events taken", f"{quality.events:,}", "events"),
        ("duplicates", f"{quality.duplicates:,}", "duplicates"),
        ("conflicts", f"{quality.conflicts:,}", "conflicts"),
        ("lines rejected", f"{rejected:,}", "rejected"),
        ("numbers missing", f"{quality.gaps:,}", "gaps"),
        ("dropped by recorders", f"{quality.dropped:,}", "dropped"),
        ("clocks apart by up to", duration(quality.max_skew_s), "max_skew_s"),
        ("ranks that never reported", f"{len(quality.silent_ranks):,}", "silent_ranks"),
        ("writers without a start", f"{quality.sources_without_start:,}", "sources_without_start"),
        ("steps without an event", f"{quality.missing_steps:,}", "missing_steps"),
        ("ends before their start", f"{quality.negative_durations:,}", "negative_durations"),
        ("assumed GPU time", unit.amount(quality.assumed_gpu_s), "assumed_gpu_s"),
    ]
    parts.table(
        [{"what": what, "figure": figure, "means": words.QUALITY[key]} for what, figure, key in told],
        "quality",
        alt="What the figures rest on",
        config={"means": st.column_config.TextColumn(width="large")},
        lines=2,
    )
    if quality.rejected:
        st.markdown("#### Rejected lines, by reason")
        parts.table(
            [{"reason": why, "lines": n} for why, n in sorted(quality.rejected.items(), key=lambda r: (-r[1], r[0]))],
            "rejected",
            alt="Rejected lines by reason",
        )
        st.caption("The table `rejected` of the database keeps the first bytes of each, with its file and place.")
    if quality.silent_ranks:
        first = ", ".join(map(str, quality.silent_ranks[:32]))
        more = " …" if len(quality.silent_ranks) > 32 else ""
        st.markdown(f"#### {counted(len(quality.silent_ranks), 'rank')} never reported")
        st.markdown(
            f"{first}{more}  \n{plain('Start the recorder on every rank, and see that each node ships its events.')}"
        )


parts.page(body)
