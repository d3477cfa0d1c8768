"""An open container entrypoint that starts vLLM with speculative decoding.

vLLM itself imports this package when it loads the middleware, so nothing may be imported here.
"""

__version__ = "0.1.0"
