"""Writes the table of limits that fraud_alerts.yaml joins payments with."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

table = pa.table({"account": ["a", "b"], "most": [100.0, 10.0]})
place = Path(__file__).parent / "lake" / "limits"
place.mkdir(parents=True, exist_ok=True)
pq.write_table(table, place / "limits.parquet")
