-- One row for each line of a web server's access log (common or combined format).
-- Any other line becomes a dead letter, which is kept beside the table.
SELECT
  element_at(f, 1) AS host,
  to_timestamp(element_at(f, 2), 'dd/MMM/yyyy:HH:mm:ss Z') AS at,
  element_at(f, 3) AS method,
  element_at(f, 4) AS path,
  CAST(element_at(f, 5) AS INT) AS status,
  -- Servers write "-" if no bytes were sent.
  coalesce(try_cast(element_at(f, 6) AS BIGINT), 0) AS bytes,
  CASE WHEN size(f) = 0 THEN 'not a line of an access log' END AS dead_letter
FROM (
  SELECT filter(
    split(
      regexp_replace(
        CAST(value AS STRING),
        '^(\\S+) \\S+ \\S+ \\[([^\\]]+)\\] "(\\S+) (\\S+)[^"]*" (\\d{3}) (\\d+|-).*$',
        '\u0001$1\u0001$2\u0001$3\u0001$4\u0001$5\u0001$6'
      ),
      '\u0001'
    ),
    (part, i) -> i > 0
  ) AS f
  FROM records
)
