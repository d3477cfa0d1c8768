"""Stands in for ``vllm`` in a container: one JSON line on stdout with what it was started with, then what it is told.

``STANDIN_WAIT=1``: run on until SIGTERM, say so, and exit with 0.  ``STANDIN_EXIT=N``: exit with N at once.
``STANDIN_SERVE=1``: answer ``/health`` on the port of ``--port`` (8000), over TLS with ``--ssl-certfile``, and wait.
"""

import json
import os
import signal
import socket
import ssl
import sys
import threading
import time
from pathlib import Path


def writable(path: str) -> bool:
    """By trying: what access() says of a read-only mount is no proof."""
    probe = Path(path) / ".standin-probe"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError:
        return False
    return True


def status(field: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:"))


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def seen() -> dict[str, object]:
    caches = [value for name, value in os.environ.items() if name.endswith(("HOME", "_DIR", "_ROOT", "_BASE"))]
    places = [path for path in ["/", "/tmp", "/opt/nim/.cache", *caches] if Path(path).is_dir()]
    model = Path(sys.argv[2] if len(sys.argv) > 2 else "/nonexistent")
    return {
        "argv": sys.argv,
        "environ": dict(os.environ),
        "pid": os.getpid(),
        "ids": [os.getuid(), os.getgid()],
        "files": names(model) if model.is_dir() else None,
        "interfaces": names(Path("/sys/class/net")),
        "capabilities": int(status("CapEff"), 16),
        "no_new_privileges": int(status("NoNewPrivs")),
        "term_default": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "writable": {path: writable(path) for path in places},
    }


def option(name: str, otherwise: str = "") -> str:
    words = [part for word in sys.argv for part in word.split("=", 1)]
    return words[words.index(name) + 1] if name in words else otherwise


def answer() -> None:
    listening = socket.create_server(("0.0.0.0", int(option("--port", "8000"))))
    certificate = option("--ssl-certfile")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
    if context:
        context.load_cert_chain(certificate, option("--ssl-keyfile"))
        if option("--ssl-cert-reqs") == "2":
            context.load_verify_locations(option("--ssl-ca-certs"))
            context.verify_mode = ssl.CERT_REQUIRED
    while True:
        connection, _ = listening.accept()
        try:
            secured = context.wrap_socket(connection, server_side=True) if context else connection
            path = secured.recv(4096).split(b" ")[1]
            secured.sendall(b"HTTP/1.1 %d OK\r\nContent-Length: 0\r\n\r\n" % (200 if path == b"/health" else 404))
            secured.close()
        except (OSError, IndexError):
            connection.close()


def stop(number: int, frame: object) -> None:
    print("got SIGTERM", flush=True)
    sys.exit(0)


def main() -> None:
    record = seen()
    signal.signal(signal.SIGTERM, stop)
    print(json.dumps(record), flush=True)
    if os.environ.get("STANDIN_SERVE"):
        threading.Thread(target=answer, daemon=True).start()
    end = time.monotonic() + 120
    while (os.environ.get("STANDIN_WAIT") or os.environ.get("STANDIN_SERVE")) and time.monotonic() < end:
        time.sleep(0.05)
    sys.exit(int(os.environ.get("STANDIN_EXIT", "0")))


if __name__ == "__main__":
    main()
