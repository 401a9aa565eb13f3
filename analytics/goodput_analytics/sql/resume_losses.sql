-- Purpose: resumes after which the loss does not go on as it was: steps computed twice that come out otherwise, or a jump.
-- Inputs:  ev_step, gp_segments; $run_id, $loss_tolerance_ratio, $low_step, $high_step (steps outside are not looked at)
-- Grain:   one row per such life.
-- Columns: first_step  the life's first step with a loss
--          twice, differing  its steps that an earlier life had computed too; of these, those whose loss differs
--          step, was, came   the first of these that differs, or the first step after a jump, and its losses (of a jump
--                            the medians of five steps before and after)
-- Algorithm: the lowest rank that tells losses speaks for all. Equal steps differ when their losses do by more than the
--            tolerance, relative to the larger; a life is odd when more than half of them do. Without any, a jump is more
--            than six times the usual change over five steps, among the 25 steps before, and beyond ten tolerances.
--            What can matter lies within 1,000 steps of a resume, or was computed twice.
CREATE OR REPLACE TEMP TABLE gp_resume_losses AS
WITH tellers AS (
    SELECT DISTINCT source_id FROM ev_step
    WHERE run_id = $run_id AND step BETWEEN $low_step AND $high_step AND loss IS NOT NULL AND isfinite(loss)
),
told AS (
    SELECT * FROM gp_segments
    WHERE rank = (SELECT min(g.rank) FROM gp_segments g SEMI JOIN tellers t ON t.source_id = g.source_id)
),
losses AS MATERIALIZED (
    SELECT g.attempt, g.life, g.life_id AS place, e.step, arg_max(e.loss, e.seq) AS loss
    FROM ev_step e JOIN told g ON g.source_id = e.source_id AND e.seq BETWEEN g.from_seq AND g.to_seq
    WHERE e.run_id = $run_id AND e.step BETWEEN $low_step AND $high_step AND e.loss IS NOT NULL AND isfinite(e.loss)
    GROUP BY g.attempt, g.life, g.life_id, e.step
),
lives AS (
    SELECT attempt, life, min(step) AS first_step FROM losses GROUP BY attempt, life
),
again AS (
    SELECT attempt, life, step, loss,
        lag(loss) OVER (PARTITION BY step ORDER BY attempt, life) AS was
    FROM losses
),
compared AS (
    SELECT *, abs(loss - was) > $loss_tolerance_ratio * greatest(abs(loss), abs(was)) AS differs
    FROM again WHERE was IS NOT NULL
),
twice AS (
    SELECT attempt, life, count(*) AS twice, count(*) FILTER (differs) AS differing,
        min(step) FILTER (differs) AS step, arg_min(was, step) FILTER (differs) AS was,
        arg_min(loss, step) FILTER (differs) AS came
    FROM compared GROUP BY attempt, life
),
resumed AS (
    SELECT l.* FROM lives l ANTI JOIN twice t ON t.attempt = l.attempt AND t.life = l.life
    WHERE (l.attempt, l.life) > (SELECT min((attempt, life)) FROM lives)
),
before AS (
    SELECT r.attempt, r.life, o.step, o.loss,
        abs(o.loss - lag(o.loss, 5) OVER (PARTITION BY r.attempt, r.life ORDER BY o.step, o.attempt, o.life)) AS change,
        row_number() OVER (PARTITION BY r.attempt, r.life ORDER BY o.step DESC, o.attempt DESC, o.life DESC) AS back
    FROM resumed r JOIN losses o
        ON (o.attempt, o.life) < (r.attempt, r.life) AND o.step < r.first_step AND o.step >= r.first_step - 1000
),
usual AS (
    SELECT attempt, life, median(change) FILTER (back <= 25) AS change, median(loss) FILTER (back <= 5) AS was, count(*) AS steps
    FROM before GROUP BY attempt, life
),
after AS (
    SELECT r.attempt, r.life, o.step, o.loss,
        row_number() OVER (PARTITION BY r.attempt, r.life ORDER BY o.step) AS place
    FROM resumed r JOIN losses o ON o.attempt = r.attempt AND o.life = r.life
),
begun AS (
    SELECT attempt, life, median(loss) AS came FROM after WHERE place <= 5 GROUP BY attempt, life
),
jumps AS (
    SELECT r.attempt, r.life, r.first_step, u.was, b.came
    FROM resumed r
    JOIN usual u ON u.attempt = r.attempt AND u.life = r.life
    JOIN begun b ON b.attempt = r.attempt AND b.life = r.life
    WHERE u.steps >= 10 AND abs(b.came - u.was) > 6 * u.change
        AND abs(b.came - u.was) > 10 * $loss_tolerance_ratio * greatest(abs(b.came), abs(u.was))
)
SELECT t.attempt, t.life, l.first_step, t.twice, t.differing, t.step, t.was, t.came
FROM twice t JOIN lives l ON l.attempt = t.attempt AND l.life = t.life
WHERE 2 * t.differing > t.twice
UNION ALL
SELECT attempt, life, first_step, 0, 0, first_step, was, came FROM jumps
ORDER BY attempt, life
