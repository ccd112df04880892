"""Makes ``format("kohort")`` known to Spark by itself.

Spark looks for packages called ``pyspark_*`` and registers their ``DefaultSource``. Nothing else
lives here; the source is ``kohort.spark.source.data_source``.
"""

from kohort.spark.source.data_source import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]
