"""A log plus policy: limits, dedupe, retention, subjects."""
