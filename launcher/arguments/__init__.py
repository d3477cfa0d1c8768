"""vLLM's arguments: every spelling its parser accepts, merged over seven levels with their origin."""
