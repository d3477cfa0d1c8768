"""What the project knows of vLLM without importing it: version tables and the child's environment."""
