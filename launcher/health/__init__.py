"""The listener on NIM_HEALTH_PORT: answers from the first second of a start on, and follows vLLM afterwards."""
