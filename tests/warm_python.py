"""Python processes that start at once: forks of a process that has imported torch, which takes seconds each time."""

import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

# Nothing of hetcal, and no more than every fit imports: what a script imports itself is as in a new process.
PRELOADED = ("torch", "torch._dynamo", "pandas", "scipy.stats", "sklearn.base")
DEADLINE_SECONDS = 300  # against hanging; nothing is measured by it


class WarmPython:
    """Runs `python OPTIONS ARGUMENTS` again and again, each time in a process of its own."""

    def __init__(self, *options):
        self.connection, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, *options, __file__, str(theirs.fileno())]
            self.server = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
        self.connection.settimeout(DEADLINE_SECONDS)

    def run(self, *arguments, cwd):
        """Run a script (its path) or a module (`-m` and its name) with arguments; it has no standard input."""
        with open(os.devnull) as nothing, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            message = json.dumps([os.fspath(cwd), *map(str, arguments)]).encode()
            socket.send_fds(self.connection, [message], [stream.fileno() for stream in (nothing, out, err)])
            try:
                code = self.connection.recv(100)
            except TimeoutError:
                os.killpg(self.server.pid, signal.SIGKILL)
                raise
            assert code, "the warm process has ended"
            for stream in (out, err):
                stream.seek(0)
            return subprocess.CompletedProcess(arguments, int(code), out.read(), err.read())

    def close(self):
        self.connection.close()
        assert self.server.wait() == 0


def serve(connection):
    """Fork a child for every request; return in the child, with its folder and arguments, or None at the end."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, 100_000, 3)
        if not message:
            return None
        child = os.fork()
        for place, stream in enumerate(streams):
            if child == 0:
                os.dup2(stream, place)
            os.close(stream)
        if child == 0:
            return json.loads(message)
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def main():
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        for module in PRELOADED:
            importlib.import_module(module)
        request = serve(connection)
    if request is not None:
        folder, *sys.argv = request
        os.chdir(folder)
        if sys.argv[0] == "-m":
            del sys.argv[0]
            sys.path[0] = folder
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(sys.argv[0]).parent)
            runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
