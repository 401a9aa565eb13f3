-- How a JSON value, as text ("12", 12, true), becomes a typed one, and what is wrong with it if it does not.
-- Used on fields that the reader gave as JSON, so that "12", 12.5 and true are told from 12. NULL: left out.
CREATE OR REPLACE TEMP MACRO gp_is_number(x) AS x[1] = '-' OR x[1] BETWEEN '0' AND '9';
CREATE OR REPLACE TEMP MACRO gp_is_text(x) AS x[1] = '"';

-- A whole number, also when written 12.0 or 1.2e1; NULL where it is none or does not fit.
CREATE OR REPLACE TEMP MACRO gp_integer(x) AS CASE
    WHEN x IS NULL OR NOT gp_is_number(x) THEN NULL
    WHEN regexp_full_match(x, '-?[0-9]+') THEN TRY_CAST(x AS BIGINT)
    WHEN TRY_CAST(x AS DOUBLE) = floor(TRY_CAST(x AS DOUBLE)) THEN TRY_CAST(TRY_CAST(x AS DOUBLE) AS BIGINT)
    END;
CREATE OR REPLACE TEMP MACRO gp_integer_fault(x, low, high) AS CASE
    WHEN x IS NULL THEN NULL
    WHEN NOT gp_is_number(x) THEN 'wrong_type'
    WHEN NOT regexp_full_match(x, '-?[0-9]+') AND TRY_CAST(x AS DOUBLE) <> floor(TRY_CAST(x AS DOUBLE)) THEN 'wrong_type'
    WHEN gp_integer(x) IS NULL OR gp_integer(x) < low OR gp_integer(x) >= high THEN 'out_of_range'
    END;

CREATE OR REPLACE TEMP MACRO gp_number(x) AS CASE WHEN gp_is_number(x) THEN TRY_CAST(x AS DOUBLE) END;
CREATE OR REPLACE TEMP MACRO gp_number_fault(x) AS CASE
    WHEN x IS NULL THEN NULL
    WHEN NOT gp_is_number(x) THEN 'wrong_type'
    WHEN TRY_CAST(x AS DOUBLE) IS NULL OR NOT isfinite(TRY_CAST(x AS DOUBLE)) THEN 'out_of_range'
    END;

CREATE OR REPLACE TEMP MACRO gp_text(x) AS CASE WHEN gp_is_text(x) THEN CAST(x AS JSON) ->> '$' END;
CREATE OR REPLACE TEMP MACRO gp_text_fault(x) AS CASE WHEN NOT gp_is_text(x) THEN 'wrong_type' END;

CREATE OR REPLACE TEMP MACRO gp_flag(x) AS CASE x WHEN 'true' THEN true WHEN 'false' THEN false END;
CREATE OR REPLACE TEMP MACRO gp_flag_fault(x) AS CASE WHEN x NOT IN ('true', 'false') THEN 'wrong_type' END;

-- A number or a text, kept as text; 12.0 and 12 are the same one.
CREATE OR REPLACE TEMP MACRO gp_identifier(x) AS
    CASE WHEN gp_is_text(x) THEN gp_text(x) WHEN gp_is_number(x) THEN coalesce(CAST(gp_integer(x) AS VARCHAR), x) END;
CREATE OR REPLACE TEMP MACRO gp_identifier_fault(x) AS
    CASE WHEN NOT (gp_is_text(x) OR gp_is_number(x)) THEN 'wrong_type' END;

CREATE OR REPLACE TEMP MACRO gp_object(x) AS CASE WHEN x[1] = '{' THEN x END;
CREATE OR REPLACE TEMP MACRO gp_object_fault(x) AS CASE WHEN x[1] <> '{' THEN 'wrong_type' END;
CREATE OR REPLACE TEMP MACRO gp_any(x) AS x;
CREATE OR REPLACE TEMP MACRO gp_any_fault(x) AS CAST(NULL AS VARCHAR);
