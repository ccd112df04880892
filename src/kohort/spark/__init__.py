"""Layer 7. Source, sink and pipeline on Spark. The classes Spark sees hold no logic."""
