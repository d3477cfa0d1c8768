"""Acceptance and speed of served models: read from metrics and from benchmark results, compared, and shown."""
