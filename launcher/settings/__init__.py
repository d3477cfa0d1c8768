"""The environment as typed values with their origin."""
