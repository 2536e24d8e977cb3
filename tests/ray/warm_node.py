"""`ray ARGUMENTS` for a node whose workers start at once: forks of a process that has imported torch.

A worker is otherwise a new Python process, and a fit on a cluster has a dozen of them, most of which import torch, for
seconds each. Here the workers are Ray's own, with their own numbers, environment and streams, and run Ray's own script.
Only their start differs: what Ray believes to be Python sends the command to this process, which forks. Everything else
that Ray starts is a new process. Ray itself is not imported before the fork, as it reads its settings from the
environment once.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

from tests.warm_python import PRELOADED, run_main, use_streams

WORKERS = "HETCAL_TEST_WORKERS"  # the variable of the socket to which commands of workers are sent
SET_UP, WORKER = "setup_worker.py", "default_worker.py"
CONTEXT = "--serialized-runtime-env-context="
# What Ray starts instead of Python. It runs as long as its worker, which holds the other end of the connection.
COMMAND = """\
#!{python} -IS
import os, sys
if not any(part.endswith({worker!r}) for part in sys.argv[1:3]):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
import json, socket
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    message = json.dumps([dict(os.environ), os.getcwd(), *sys.argv[1:]]).encode()
    socket.send_fds(connection, [len(message).to_bytes(8, "little")], [0, 1, 2])
    connection.sendall(message)
    connection.recv(1)
"""


def main():
    address = os.environ[WORKERS]
    python = Path(f"{address}.python")
    python.write_text(COMMAND.format(python=sys.executable, worker=WORKER, address=address))
    python.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        ray = os.fork()
        if ray != 0:
            end_together(ray)
            for module in (*PRELOADED, "pyarrow"):
                importlib.import_module(module)
            serve(listener)
    if ray == 0:
        sys.executable = str(python)
        sys.argv = ["-m", "ray.scripts.scripts", *sys.argv[1:]]
    run_main()  # the node, or a worker


def end_together(ray):
    """End when the node ends, and ask it to end when this process is asked to; bury the workers."""

    def bury(*_):
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == ray:
                    os._exit(os.waitstatus_to_exitcode(ended[1]) & 0xFF)

    signal.signal(signal.SIGCHLD, bury)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(ray, signal.SIGTERM))
    bury()  # it may have ended before


def serve(listener):
    """Fork a worker for every command; return in the worker, with the command in sys.argv."""
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            break
        connection.close()
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    length, streams, _, _ = socket.recv_fds(connection, 8, 3)
    environment, folder, *command = json.loads(
        connection.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL).decode()
    )
    connection.detach()  # it stays open as long as this process runs
    use_streams(streams)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = set_up(command)


def set_up(command):
    """What Ray's `setup_worker.py` does for workers that have only variables of their own: the command without it."""
    if not command[0].endswith(SET_UP):
        return command
    context = next(part for part in command if part.startswith(CONTEXT))
    given = json.loads(context.removeprefix(CONTEXT))
    os.environ.update(given["env_vars"])
    return [part for part in command[1:] if part != context and not part.startswith("--language=")]


if __name__ == "__main__":
    main()
