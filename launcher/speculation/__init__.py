"""Speculative decoding: which method, which draft, whether they fit, and why."""
