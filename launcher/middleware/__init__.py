"""What the launcher adds to vLLM's HTTP server, inside vLLM's own process (``vllm serve --middleware …``).

Everything here runs in vLLM's interpreter, so it needs the standard library alone and, where vLLM brings it,
``prometheus_client``, which is imported when a metric is made.  It is configured by one variable
(`launcher.middleware.configuration`) and reads no other.
"""
