-- The odd events' kind, run and source, with what carries over.
-- In: odd (JSON texts), carried. Out: odd_heads (pos, kind, run, source, fault), one row per row of odd.
CREATE OR REPLACE TEMP TABLE odd_heads AS
SELECT o.pos, gp_text(o.kind) AS kind,
    CASE WHEN o.run IS NOT NULL THEN gp_text(o.run) WHEN gp_text(o.kind) <> 'allocation' THEN c.run END AS run,
    CASE WHEN o.source IS NOT NULL THEN gp_text(o.source) WHEN gp_text(o.kind) <> 'allocation' THEN c.source END AS source,
    CASE WHEN o.kind IS NULL THEN 'missing_field'
        ELSE coalesce(
            gp_text_fault(o.kind),
            CASE WHEN NOT list_contains($kinds, gp_text(o.kind)) THEN 'unknown_kind' END,
            gp_text_fault(o.run),
            gp_text_fault(o.source))
        END AS fault
FROM odd o LEFT JOIN carried c ON c.pos = o.pos;
