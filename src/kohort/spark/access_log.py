"""A batch query over a table of parsed access-log lines.

What lives here: ``traffic``. In goes a table with the columns ``at``, ``path``, ``status`` and
``bytes``, out come sums per path and hour. It must not know how the lines were parsed or where
the table is.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def traffic(requests: DataFrame) -> DataFrame:
    """Requests, bytes and errors per path and hour.

    Args:
        requests: one row a request: ``at`` (timestamp), ``path``, ``status``, ``bytes``.

    Returns:
        Columns ``path``, ``hour`` (its beginning), ``requests``, ``bytes`` (sent) and ``errors``
        (status 400 and above), one row for each path and hour that has requests.
    """
    return requests.groupBy("path", F.date_trunc("hour", "at").alias("hour")).agg(
        F.count("*").alias("requests"),
        F.sum("bytes").alias("bytes"),
        F.count(F.when(F.col("status") >= 400, 1)).alias("errors"),
    )
