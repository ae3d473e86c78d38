"""Runs a server in this process and prints which modules it had imported at its first INFO."""

import os
import socket
import sys
import threading
import time


def look(port: int, known: frozenset[str]) -> None:
    """Wait for the first INFO, print the modules and end the process."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 30) as client:
                assert client.recv(5) == b"INFO "
                break
        except ConnectionRefusedError:
            time.sleep(0.001)
    os.write(1, " ".join(sorted(set(sys.modules) - known)).encode())
    os._exit(0)


def main() -> None:
    port, directory, *more = sys.argv[1:]
    known = frozenset(sys.modules)
    threading.Thread(target=look, args=(int(port), known), daemon=True).start()
    from millstream.cli.main import run

    run(["nats-server", "-a", "127.0.0.1", "-p", port, "-sd", directory, *more])


main()
