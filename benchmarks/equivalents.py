# ruff: noqa: E501
"""Changes of the SQL that cannot change any report, nor what lands, each with the reason. `Mutant.key` says how they are named."""

from __future__ import annotations

REASONS: dict[str, tuple[str, ...]] = {
    "the report asks for its own order; this one serves who reads the relation": (
        "attempt_list: ORDER BY a.attempt -> ORDER BY a.attempt DESC",
        "silent_ranks: ORDER BY p.rank -> ORDER BY p.rank DESC",
        "stragglers: ORDER BY loss_gpu_ns DESC, d.rank -> ORDER BY loss_gpu_ns, d.rank",
        "stragglers: ORDER BY loss_gpu_ns DESC, d.rank -> ORDER BY loss_gpu_ns DESC, d.rank DESC",
    ),
    "a block that has an offset of its own has taken it from the join before": (
        "clocks: N n.source_id = s.source_id AND s.block < n.block -> N n.source_id = s.source_id AND s.block <= n.block",
    ),
    "spares work: a source belongs to one run, and only its own members are joined": (
        "events: WHERE h.run_id = $run_id AND h.of_source IS NOT NULL -> WHERE h.run_id = $run_id OR h.of_source IS NOT NULL",
    ),
    "says only whether windows are worth reducing again; reducing them again changes nothing": (
        "limits: a.outcome <> 'live' AND EXISTS ( -> a.outcome <> 'live' OR EXISTS (",
        "limits: p_windows w WHERE w.attempt = a.attempt AND w.last_end_ns > a.end_ns) AS late -> p_windows w WHERE w.attempt = a.attempt OR w.last_end_ns > a.end_ns) AS late",
        "limits: w.attempt = a.attempt AND w.last_end_ns > a.end_ns) AS late -> w.attempt = a.attempt AND w.last_end_ns >= a.end_ns) AS late",
    ),
    "a part begins with a start or a joined, never with a stop": (
        "part_facts: ource_id = e.source_id AND e.seq BETWEEN p.from_seq AND p.to_seq -> ource_id = e.source_id AND e.seq BETWEEN 1 + p.from_seq AND p.to_seq",
    ),
    "a grant that starts with the process gives the same start": (
        "startup_entries: tions g ON g.job = l.job AND g.start_ns <= l.process_ns GROUP BY l.attempt -> tions g ON g.job = l.job AND g.start_ns < l.process_ns GROUP BY l.attempt",
    ),
    "an interval that begins where the other ends shares no time with it: the piece is empty, and left out": (
        "span_entries: c ON c.attempt = t.attempt AND c.end_ns > t.steps_end_ns AND c.start_ns < t.decla -> c ON c.attempt = t.attempt AND c.end_ns >= t.steps_end_ns AND c.start_ns < t.decla",
        "span_entries: .end_ns > t.steps_end_ns AND c.start_ns < t.declared_ns -> .end_ns > t.steps_end_ns AND c.start_ns <= t.declared_ns",
        "startup_entries: ON c.attempt = b.attempt AND c.start_ns < b.started_ns AND c.end_ns > greatest(b. -> ON c.attempt = b.attempt AND c.start_ns <= b.started_ns AND c.end_ns > greatest(b.",
        "startup_entries: c.start_ns < b.started_ns AND c.end_ns > greatest(b.process_ns, b.from_ns) -> c.start_ns < b.started_ns AND c.end_ns >= greatest(b.process_ns, b.from_ns)",
        "tail_entries: c ON c.attempt = e.attempt AND c.end_ns > e.steps_end_ns AND c.start_ns < e.decla -> c ON c.attempt = e.attempt AND c.end_ns >= e.steps_end_ns AND c.start_ns < e.decla",
        "tail_entries: .end_ns > e.steps_end_ns AND c.start_ns < e.declared_ns -> .end_ns > e.steps_end_ns AND c.start_ns <= e.declared_ns",
    ),
    "a span that ended before is cut to nothing, and pieces before the beginning are left out": (
        "startup_entries: .start_ns < b.started_ns AND c.end_ns > greatest(b.process_ns, b.from_ns) -> .start_ns < b.started_ns AND c.end_ns > least(b.process_ns, b.from_ns)",
    ),
    "spans are cut to the time after the process's start: no piece is both": (
        "startup_entries: WHEN p.end_ns <= b.process_ns AND b.previous_attempt IS NOT NULL THEN 'restart' WHEN s.name IS NOT NULL THEN s.name WHEN p.end_ns <= b.told_ns THEN 'launch' -> WHEN s.name IS NOT NULL THEN s.name WHEN p.end_ns <= b.process_ns AND b.previous_attempt IS NOT NULL THEN 'restart' WHEN p.end_ns <= b.told_ns THEN 'launch'",
    ),
    "two cuts of one attempt are never at one moment (UNION)": (
        "startup_entries: WHERE p.end_ns > p.start_ns AND p.start_ns >= b.from_ns -> WHERE p.end_ns >= p.start_ns AND p.start_ns >= b.from_ns",
    ),
    "where a cover begins, what it takes is what all before it take": (
        "touched_measures: p_to.attempt = o.attempt AND o.start_ns >= gap_to.start_ns -> p_to.attempt = o.attempt AND o.start_ns > gap_to.start_ns",
        "touched_measures: from.attempt = o.attempt AND o.after_ns >= gap_from.start_ns -> from.attempt = o.attempt AND o.after_ns > gap_from.start_ns",
        "touched_measures: AND o.end_ns >= own_to.start_ns -> AND o.end_ns > own_to.start_ns",
        "touched_measures: AND o.start_ns >= own_from.start_ns -> AND o.start_ns > own_from.start_ns",
    ),
    "only an attempt's first window has a warm-up, and no rank has a gap before its first step": (
        "window_parts: least(coalesce(told_gap_ns, 0), net_ns - warmup_ns - data_ns) AS gap_ns FROM lat -> least(coalesce(told_gap_ns, 0), net_ns + warmup_ns - data_ns) AS gap_ns FROM lat",
    ),
    "a first sieve that spares work: the hang's own test decides": (
        "window_parts: SELECT attempt, max(idx) <= 1 AS alone FROM rests GROUP BY -> SELECT attempt, min(idx) <= 1 AS alone FROM rests GROUP BY",
        "window_parts: ts GROUP BY attempt HAVING max(rest_ns) > $hang_floor_ns -> ts GROUP BY attempt HAVING max(rest_ns) >= $hang_floor_ns",
        "window_parts: min(CASE WHEN r.idx > 0 THEN r.rest_ns // r.c END) OVER ( -> min(CASE WHEN r.idx >= 0 THEN r.rest_ns // r.c END) OVER (",
        "window_parts: WHERE rest_ns > $hang_floor_ns AND (alone OR rest_ns > -> WHERE rest_ns >= $hang_floor_ns AND (alone OR rest_ns >",
        "window_parts: WHERE rest_ns > $hang_floor_ns AND (alone OR rest_ns > (c + 2)::HUGEINT * -> WHERE rest_ns > $hang_floor_ns OR (alone OR rest_ns > (c + 2)::HUGEINT *",
        "window_parts: > $hang_floor_ns AND (alone OR rest_ns > (c + 2)::HUGEINT * least_ns) -> > $hang_floor_ns AND (alone OR rest_ns >= (c + 2)::HUGEINT * least_ns)",
        "window_parts: ang_floor_ns AND (alone OR rest_ns > (c + 2)::HUGEINT * least_ns) -> ang_floor_ns AND (alone OR rest_ns > (c - 2)::HUGEINT * least_ns)",
        "window_parts: g_floor_ns AND (alone OR rest_ns > (c + 2)::HUGEINT * least_ns) -> g_floor_ns AND (alone OR rest_ns > (c + 1)::HUGEINT * least_ns)",
    ),
    "as many before as after": (
        "window_parts: PARTITION BY r.attempt ORDER BY r.idx ROWS BETWEEN 25 PRECEDING AND 25 FOLLOW -> PARTITION BY r.attempt ORDER BY r.idx DESC ROWS BETWEEN 25 PRECEDING AND 25 FOLLOW",
    ),
    "the least of all but one still bounds the median of so many from below": (
        "window_parts: Y r.attempt ORDER BY r.idx ROWS BETWEEN 25 PRECEDING AND 25 FOLLOWING) AS least_ns -> Y r.attempt ORDER BY r.idx ROWS BETWEEN 24 PRECEDING AND 25 FOLLOWING) AS least_ns",
        "window_parts: BY r.idx ROWS BETWEEN 25 PRECEDING AND 25 FOLLOWING) AS least_ns -> BY r.idx ROWS BETWEEN 25 PRECEDING AND 24 FOLLOWING) AS least_ns",
    ),
    "what is let in besides counts as nothing": (
        "at_risk: ' AND p.step - p.c + p.before + p.steps > $durable_step -> ' AND p.step - p.c + p.before + p.steps >= $durable_step",
    ),
    "a part begins with a start or a joined, never with a step, a resume or a stop": (
        "boundaries: ource_id = r.source_id AND r.seq BETWEEN m.from_seq AND m.to_seq -> ource_id = r.source_id AND r.seq BETWEEN 1 + m.from_seq AND m.to_seq",
        "boundaries: ource_id = e.source_id AND e.seq BETWEEN m.from_seq AND m.to_seq -> ource_id = e.source_id AND e.seq BETWEEN 1 + m.from_seq AND m.to_seq",
        "boundaries: WHERE last_seq >= from_seq -> WHERE last_seq > from_seq",
    ),
    "spares work only: what is let in besides finds nothing to join": (
        "boundaries: ) f ON f.source_id = c.source_id AND c.seq > f.first_seq) -> ) f ON f.source_id = c.source_id OR c.seq > f.first_seq)",
        "boundaries: ON f.source_id = c.source_id AND c.seq > f.first_seq) -> ON f.source_id = c.source_id AND c.seq >= f.first_seq)",
        "portions: WHERE d.before > 0 AND p.upto < p.c -> WHERE d.before >= 0 AND p.upto < p.c",
        "portions: WHERE d.before > 0 AND p.upto < p.c -> WHERE d.before > 0 OR p.upto < p.c",
        "portions: WHERE d.before > 0 AND p.upto < p.c -> WHERE d.before > 0 AND p.upto <= p.c",
    ),
    "no two branches hold at once": (
        "macros: WHEN x IS NULL OR NOT gp_is_number(x) THEN NULL WHEN regexp_full_match(x, '-?[0-9]+') THEN TRY_CAST(x AS BIGINT) WHEN TRY_CAST(x AS DOUBLE) = floor(TRY_C -> WHEN regexp_full_match(x, '-?[0-9]+') THEN TRY_CAST(x AS BIGINT) WHEN x IS NULL OR NOT gp_is_number(x) THEN NULL WHEN TRY_CAST(x AS DOUBLE) = floor(TRY_C",
        "macros: CASE WHEN gp_is_text(x) THEN gp_text(x) WHEN gp_is_number(x) THEN coalesce(CAST(gp_integer(x) AS VARCHAR), x) END; -> CASE WHEN gp_is_number(x) THEN coalesce(CAST(gp_integer(x) AS VARCHAR), x) WHEN gp_is_text(x) THEN gp_text(x) END;",
        "macros: REPLACE TEMP MACRO gp_flag(x) AS CASE x WHEN 'true' THEN true WHEN 'false' THEN false END; -> REPLACE TEMP MACRO gp_flag(x) AS CASE x WHEN 'false' THEN false WHEN 'true' THEN true END;",
        "span_entries: CASE WHEN thrown THEN charged_attempt WHEN unfinished THEN attempt END AS charged_attempt, -> CASE WHEN unfinished THEN attempt WHEN thrown THEN charged_attempt END AS charged_attempt,",
        "span_entries: CASE WHEN thrown THEN charged_life WHEN unfinished THEN life END AS charged_life, -> CASE WHEN unfinished THEN life WHEN thrown THEN charged_life END AS charged_life,",
        "tail_entries: WHEN category = 'hang' THEN activity WHEN NOT hung AND category IN ('unattributed', 'startup') THEN activity END, -> WHEN NOT hung AND category IN ('unattributed', 'startup') THEN activity WHEN category = 'hang' THEN activity END,",
        "end_causes: WHEN outcome = 'finished' THEN 'finished' WHEN outcome = 'live' THEN 'live' WHEN coalesce(hung, false) OR silent THE -> WHEN outcome = 'live' THEN 'live' WHEN outcome = 'finished' THEN 'finished' WHEN coalesce(hung, false) OR silent THE",
        "spans: WHEN name = 'checkpoint' THEN 1 WHEN name = 'evaluation' THEN 2 WHEN name IN ('init', 'rendezvous', 'loa -> WHEN name = 'evaluation' THEN 2 WHEN name = 'checkpoint' THEN 1 WHEN name IN ('init', 'rendezvous', 'loa",
        "spans: WHEN name = 'evaluation' THEN 2 WHEN name IN ('init', 'rendezvous', 'load_checkpoint', 'compile', 'data_skip') THEN 3 ELSE 4 -> WHEN name IN ('init', 'rendezvous', 'load_checkpoint', 'compile', 'data_skip') THEN 3 WHEN name = 'evaluation' THEN 2 ELSE 4",
        "spans: WHEN kind_rank = 1 THEN 'checkpoint' WHEN kind_rank = 2 THEN 'evaluation' WHEN kind_rank = 3 THEN 'startup' -> WHEN kind_rank = 2 THEN 'evaluation' WHEN kind_rank = 1 THEN 'checkpoint' WHEN kind_rank = 3 THEN 'startup'",
        "spans: WHEN kind_rank = 2 THEN 'evaluation' WHEN kind_rank = 3 THEN 'startup' WHEN category IN ('productive', 'startup -> WHEN kind_rank = 3 THEN 'startup' WHEN kind_rank = 2 THEN 'evaluation' WHEN category IN ('productive', 'startup",
        "attempts: WHEN outcome = 'finished' THEN last_stop_ns WHEN outcome = 'live' THEN greatest($now_ns, process_ns, last_step_ns) WHEN most_said_ns IS NOT NULL OR most_go -> WHEN outcome = 'live' THEN greatest($now_ns, process_ns, last_step_ns) WHEN outcome = 'finished' THEN last_stop_ns WHEN most_said_ns IS NOT NULL OR most_go",
    ),
    "the two are the same moment then": (
        "spans: CASE WHEN m.stop_ns < b.begin_ns THEN b.begin_ns ELSE m.stop_ -> CASE WHEN m.stop_ns <= b.begin_ns THEN b.begin_ns ELSE m.stop_",
    ),
    "empty entries are left out at the end": (
        "span_entries: SELECT * FROM divided WHERE end_ns > start_ns -> SELECT * FROM divided WHERE end_ns >= start_ns",
        "window_entries: FROM gp_window_parts WHERE warmup_ns > 0 -> FROM gp_window_parts WHERE warmup_ns >= 0",
        "window_entries: FROM gp_window_parts WHERE hang_ns > 0 -> FROM gp_window_parts WHERE hang_ns >= 0",
    ),
    "a list of none is NULL, so no list has the length 0": (
        "attempts: CASE WHEN len(bad_ns) > 0 THEN bad_ns[len(bad_ns) // 2 + 1] END -> CASE WHEN len(bad_ns) >= 0 THEN bad_ns[len(bad_ns) // 2 + 1] END",
        "attempts: coalesce(len(gone_ns) > 0, false) AS seen, -> coalesce(len(gone_ns) >= 0, false) AS seen,",
        "attempts: WHEN len(bad_ns) > 0 OR vanished > 0 OR next_ns IS NOT NUL -> WHEN len(bad_ns) >= 0 OR vanished > 0 OR next_ns IS NOT NUL",
        "attempts: WHEN len(gone_ns) > 0 THEN gone_ns[-1] -> WHEN len(gone_ns) >= 0 THEN gone_ns[-1]",
    ),
    "they are equal where both are known": (
        "saves: coalesce(s.attempt, m.attempt) AS attempt, coalesce(s.life, m.life) A -> coalesce(m.attempt, s.attempt) AS attempt, coalesce(s.life, m.life) A",
        "saves: ttempt, m.attempt) AS attempt, coalesce(s.life, m.life) AS life, coalesce(s.step, m.step) AS s -> ttempt, m.attempt) AS attempt, coalesce(m.life, s.life) AS life, coalesce(s.step, m.step) AS s",
        "saves: lesce(s.life, m.life) AS life, coalesce(s.step, m.step) AS step, -> lesce(s.life, m.life) AS life, coalesce(m.step, s.step) AS step,",
        "saves: N gp_attempts a ON a.attempt = coalesce(s.attempt, m.attempt) -> N gp_attempts a ON a.attempt = coalesce(m.attempt, s.attempt)",
        "last_lives: SELECT coalesce(s.attempt, t.attempt) AS attempt, greatest(s.life, t.life) A -> SELECT coalesce(t.attempt, s.attempt) AS attempt, greatest(s.life, t.life) A",
    ),
    "before the first window there is none to join": (
        "span_entries: CASE WHEN w.idx > 0 THEN lag_step.step END AS step_before -> CASE WHEN w.idx >= 0 THEN lag_step.step END AS step_before",
    ),
    "beyond its first window the first life always has a step before": (
        "window_times: b.life > 0 AND b.step_before IS NULL AND b.idx > -> b.life >= 0 AND b.step_before IS NULL AND b.idx >",
    ),
    "where just half have gone there is none at the place that is asked for: NULL either way": (
        "attempts: CASE WHEN 2 * len(gone_ns) > ranks THEN gone_ns[ranks // 2 + 1] END -> CASE WHEN 2 * len(gone_ns) >= ranks THEN gone_ns[ranks // 2 + 1] END",
    ),
    "in a live attempt nobody ended badly and no more than half have finished: neither of the two is known": (
        "attempts: WHEN outcome = 'live' THEN greatest($now_ns, process_ns, last_step_ns) WHEN most_said_ns IS NOT NULL OR most_gone_ns IS NOT NULL THEN greatest(most_said_ns, most_gone_ns) WHEN len(gone_ns) > 0 THEN gone_ns[-1] -> WHEN most_said_ns IS NOT NULL OR most_gone_ns IS NOT NULL THEN greatest(most_said_ns, most_gone_ns) WHEN outcome = 'live' THEN greatest($now_ns, process_ns, last_step_ns) WHEN len(gone_ns) > 0 THEN gone_ns[-1]",
    ),
    "a cut of no length divides a cover in two of the same name, and holds nothing itself": (
        "covers: WHERE new_life AND start_ns > begin_ns -> WHERE new_life AND start_ns >= begin_ns",
    ),
    "stretches of one run of like spans are told apart or not: they are of one name, category and step, and nothing stands between": (
        "covers: CT *, sum((reach_ns IS NULL OR begin_ns > reach_ns)::INTEGER) -> CT *, sum((reach_ns IS NULL OR begin_ns >= reach_ns)::INTEGER)",
        "covers: DER BY kind_rank, run_no DESC, island_no DESC) AS priority -> DER BY kind_rank, run_no DESC, island_no) AS priority",
        "covers: rank, seq, name, category, step, end_ns) -> rank, seq, name, category, step, end_ns DESC)",
    ),
    "both sides are the same number then": (
        "late_key: CASE WHEN late_ns > 8796093022207 THEN 8796093022207 ELSE l -> CASE WHEN late_ns >= 8796093022207 THEN 8796093022207 ELSE l",
        "middle_ns: pair[1] + CASE WHEN pair[2] >= pair[1] THEN (pair[2] - pair[1]) // 2 E -> pair[1] + CASE WHEN pair[2] > pair[1] THEN (pair[2] - pair[1]) // 2 E",
    ),
    "a life that a boundary begins is never the first": (
        "life_moments: .part AND g.from_seq = b.seq AND g.life > 0 -> .part AND g.from_seq = b.seq AND g.life >= 0",
    ),
    "a part begins with a start or a joined, never with a step": (
        "agreed_boundaries: ource_id = m.source_id AND r.seq BETWEEN m.from_seq AND m.to_seq -> ource_id = m.source_id AND r.seq BETWEEN 1 + m.from_seq AND m.to_seq",
    ),
    "a portion of no step has no time, and is left out of every sum": (
        "portions: AND f.after_step < w.step AND f.to_step > w.step - w.c -> AND f.after_step < w.step AND f.to_step >= w.step - w.c",
    ),
    "suspects are found per attempt, in an order of their own": (
        "signs: ORDER BY g.attempt, g.rank, g.source_id, g.part -> ORDER BY g.attempt DESC, g.rank, g.source_id, g.part",
        "signs: ORDER BY g.attempt, g.rank, g.source_id, g.part -> ORDER BY g.attempt, g.rank DESC, g.source_id, g.part",
        "signs: ORDER BY g.attempt, g.rank, g.source_id, g.part -> ORDER BY g.attempt, g.rank, g.source_id DESC, g.part",
        "signs: Y g.attempt, g.rank, g.source_id, g.part -> Y g.attempt, g.rank, g.source_id, g.part DESC",
    ),
    "a rollback's wait is named restart in either branch": (
        "span_entries: CASE WHEN restart THEN 'restart' WHEN NOT thrown AND category IN ('startup', 'unattributed', 'hang') THEN name END AS phase, -> CASE WHEN NOT thrown AND category IN ('startup', 'unattributed', 'hang') THEN name WHEN restart THEN 'restart' END AS phase,",
    ),
    "what is touched for nothing is measured again, and comes out the same": (
        "touched_windows: tempt ORDER BY begin_ns, blocking_end_ns -> tempt ORDER BY begin_ns, blocking_end_ns DESC",
        "touched_windows: FROM gp_spans WHERE blocking_end_ns > begin_ns -> FROM gp_spans WHERE blocking_end_ns >= begin_ns",
        "touched_windows: CT *, sum((reach_ns IS NULL OR begin_ns > reach_ns)::INTEGER) -> CT *, sum((reach_ns IS NULL OR begin_ns >= reach_ns)::INTEGER)",
    ),
    "a longer row of windows: those that the cover does not meet are left out at the end": (
        "window_covers: ELECT c.*, unnest(range(f.idx, coalesce(t.idx, l.idx) + 1)) AS idx -> ELECT c.*, unnest(range(f.idx, coalesce(l.idx, t.idx) + 1)) AS idx",
        "window_covers: ON f.attempt = c.attempt AND c.start_ns < f.end_ns -> ON f.attempt = c.attempt AND c.start_ns <= f.end_ns",
        "window_covers: t ON t.attempt = c.attempt AND c.end_ns <= t.end_ns -> t ON t.attempt = c.attempt AND c.end_ns < t.end_ns",
        "window_covers: HERE w.begin_ns < c.end_ns AND w.end_ns > c.start_ns -> HERE w.begin_ns < c.end_ns AND w.end_ns >= c.start_ns",
    ),
    "of spans that begin together all but the longest add what is left: the sum is the longest's": (
        "saves: step ORDER BY begin_ns, blocking_end_ns -> step ORDER BY begin_ns, blocking_end_ns DESC",
    ),
    "chooses between two ways to the same rows": (
        "segments: count(*) OVER (PARTITION BY source_id) > 16 AS many, -> count(*) OVER (PARTITION BY source_id) >= 16 AS many,",
    ),
    "spares work: what is measured besides is asked for nowhere": (
        "gap_attempts: pt FROM gp_windows WHERE 2 * busy_ranks < ranks -> pt FROM gp_windows WHERE 2 * busy_ranks <= ranks",
    ),
    "a number told again is a later piece of a step, or the first step of a life: of neither is the gap read": (
        'rank_steps: BETWEEN step - coalesce("count", 1) AND step THEN greatest(start_ns - before_en -> BETWEEN step - coalesce("count", 1) AND -1 + step THEN greatest(start_ns - before_en',
    ),
    "a stream's begin stands one byte before its first line": (
        "carry: n p ASOF JOIN goodput_begins b ON p.pos >= b.pos -> n p ASOF JOIN goodput_begins b ON p.pos > b.pos",
    ),
    "what a line says itself is read from it, and what it lacks is what held before it": (
        "carry: ASOF JOIN marks m ON l.pos >= m.pos; -> ASOF JOIN marks m ON l.pos > m.pos;",
        "fill: SELECT p.* REPLACE (coalesce(p.run, m.run) AS run, coalesce(p.source, m.source) A -> SELECT p.* REPLACE (coalesce(m.run, p.run) AS run, coalesce(p.source, m.source) A",
        "fill: coalesce(p.run, m.run) AS run, coalesce(p.source, m.source) AS source) -> coalesce(p.run, m.run) AS run, coalesce(m.source, p.source) AS source)",
        "fill: FROM plain p ASOF JOIN marks m ON p.pos >= m.pos; -> FROM plain p ASOF JOIN marks m ON p.pos > m.pos;",
    ),
    "the event with which the next part begins has another token": (
        "parts: AND t.seq >= b.seq AND t.seq < coalesce(b.next_seq, 922337203685477580 -> AND t.seq >= b.seq AND t.seq <= coalesce(b.next_seq, 922337203685477580",
    ),
    "of two heartbeats at one moment the further one has advanced in either order, and the mark is that moment": (
        "tails: ource_id, v.part ORDER BY v.ts_ns, v.seq -> ource_id, v.part ORDER BY v.ts_ns, v.seq DESC",
    ),
    "a kind that is no text is looked up nowhere: no two branches hold at once": (
        "heads: ELSE coalesce( gp_text_fault(o.kind), CASE WHEN NOT list_contains($kinds, gp_text(o.kind)) THEN 'unknown_kind' END, -> ELSE coalesce(CASE WHEN NOT list_contains($kinds, gp_text(o.kind)) THEN 'unknown_kind' END, gp_text_fault(o.kind),",
    ),
    "the careful way, and it links the same": (
        "in_order: SELECT (count(*) FILTER (NOT coalesce(follows, false)) = (SELECT count(*) FROM batch_tips) -> SELECT (count(*) FILTER (NOT coalesce(false, follows)) = (SELECT count(*) FROM batch_tips)",
    ),
    "no event is staged twice": (
        "in_order: AND count(*) FILTER (follows AND seq <= last_seq) = 0)::INTEGER -> AND count(*) FILTER (follows AND seq < last_seq) = 0)::INTEGER",
    ),
    "an event that came once is its own only copy": (
        "repeated_keys: GROUP BY source_id, seq HAVING count(*) > 1 -> GROUP BY source_id, seq HAVING count(*) >= 1",
    ),
    "no landed event is staged again; where one gives way its source is unlinked already": (
        "tips: WHERE t.seq >= b.min_seq; -> WHERE t.seq > b.min_seq;",
    ),
    "of NULL nothing is asked: it is neither a number nor none": (
        "macros: WHEN x IS NULL THEN NULL WHEN NOT gp_is_number(x) THEN 'wrong_type' WHEN NOT regexp_full_match(x, '-?[0-9]+' -> WHEN NOT gp_is_number(x) THEN 'wrong_type' WHEN x IS NULL THEN NULL WHEN NOT regexp_full_match(x, '-?[0-9]+'",
        "macros: WHEN x IS NULL THEN NULL WHEN NOT gp_is_number(x) THEN 'wrong_type' WHEN TRY_CAST(x AS DOUBLE) IS NULL OR NO -> WHEN NOT gp_is_number(x) THEN 'wrong_type' WHEN x IS NULL THEN NULL WHEN TRY_CAST(x AS DOUBLE) IS NULL OR NO",
    ),
    "both branches say the same": (
        "macros: WHEN NOT gp_is_number(x) THEN 'wrong_type' WHEN NOT regexp_full_match(x, '-?[0-9]+') AND TRY_CAST(x AS DOUBLE) <> floor(TRY_CAST(x AS DOUBLE)) THEN 'wrong_type' WHEN gp_integer(x) IS NULL OR gp_integer -> WHEN NOT regexp_full_match(x, '-?[0-9]+') AND TRY_CAST(x AS DOUBLE) <> floor(TRY_CAST(x AS DOUBLE)) THEN 'wrong_type' WHEN NOT gp_is_number(x) THEN 'wrong_type' WHEN gp_integer(x) IS NULL OR gp_integer",
    ),
}

EQUIVALENT: dict[str, str] = {key: reason for reason, keys in REASONS.items() for key in keys}
