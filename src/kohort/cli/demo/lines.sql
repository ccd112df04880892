-- One row for each line of any text: its key, which is its first field, and the line itself.
SELECT
  CAST(key AS STRING) AS first_field,
  CAST(value AS STRING) AS line,
  timestamp AS fed_at
FROM records
