"""Tables that pipelines read and write: Parquet, Delta, Iceberg, and the quarantine."""
