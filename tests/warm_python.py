"""Python processes that start at once: forks of a process that has imported torch, which takes seconds each time."""

import contextlib
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import types
from pathlib import Path

# Nothing of hetcal, and no more than every fit imports: what a script imports itself is as in a new process.
PRELOADED = ("torch", "torch._dynamo", "pandas", "scipy.stats", "sklearn.base")
DEADLINE_SECONDS = 300  # against hanging; nothing is measured by it
REPORT_BYTES = 16  # of every report of a supervisor, so that two of them are not read as one


class WarmProcess:
    """What tests use of `subprocess.Popen`, of a process that is no child of this one."""

    def __init__(self, connection):
        self.connection, self.returncode = connection, None
        self.pid = int(self.receive(DEADLINE_SECONDS))

    def receive(self, seconds):
        """The next message of the supervisor; None if there is none yet."""
        self.connection.settimeout(seconds)
        try:
            message = self.connection.recv(REPORT_BYTES)
        except (TimeoutError, BlockingIOError):
            return None
        assert message, "the warm process has ended"
        return message

    def poll(self, seconds=0):
        if self.returncode is None and (code := self.receive(seconds)) is not None:
            self.returncode = int(code)
            self.connection.close()
        return self.returncode

    def wait(self, timeout=DEADLINE_SECONDS):
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.wait()


class WarmPython:
    """Runs `python OPTIONS ARGUMENTS` again and again, each time in a process of its own."""

    def __init__(self, *options):
        self.connection, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, *options, __file__, str(theirs.fileno())]
            self.server = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)

    def start(self, *arguments, cwd, stdin=0, stdout=1, stderr=2, start_new_session=False):
        """Start a script (its path), a module (`-m` and its name) or code (`-c` and the code), with arguments.

        The environment is that in which this object was made. Streams are files or their descriptors.
        """
        connection, theirs = socket.socketpair()
        with theirs:
            message = json.dumps([start_new_session, os.fspath(cwd), *map(str, arguments)]).encode()
            streams = [stream if isinstance(stream, int) else stream.fileno() for stream in (stdin, stdout, stderr)]
            # The length first, as a message may arrive in pieces.
            socket.send_fds(self.connection, [len(message).to_bytes(8, "little")], [*streams, theirs.fileno()])
            self.connection.sendall(message)
        return WarmProcess(connection)

    def run(self, *arguments, cwd):
        """Run it to its end, without standard input."""
        with open(os.devnull) as nothing, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self.start(*arguments, cwd=cwd, stdin=nothing, stdout=out, stderr=err)
            try:
                code = process.wait()
            finally:
                process.kill()
            for stream in (out, err):
                stream.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), err.read())

    def close(self):
        self.connection.close()
        assert self.server.wait() == 0


def serve(connection):
    """Fork a child for every request; return in the child, with its request, or None at the end."""
    while True:
        length, descriptors, _, _ = socket.recv_fds(connection, 8, 4)
        with contextlib.suppress(ChildProcessError):  # there are no more supervisors
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not length:
            return None
        message = connection.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL)
        if os.fork() == 0:
            child = os.fork()
            if child != 0:
                supervise(child, descriptors)
            use_streams(descriptors)
            return json.loads(message)
        for descriptor in descriptors:
            os.close(descriptor)


def supervise(child, descriptors):
    """Report the number of the child and, when it has ended, its exit code; hold nothing that others wait for."""
    *streams, reports = descriptors
    for descriptor in streams:
        os.close(descriptor)
    os.write(reports, f"{child:{REPORT_BYTES}}".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):  # the test has ended before
        os.write(reports, f"{code:{REPORT_BYTES}}".encode())
    os._exit(0)


def use_streams(descriptors):
    """Make them the standard streams, with buffers that suit them: those of a terminal end with every line."""
    for place, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, place)
    for descriptor in descriptors:
        os.close(descriptor)
    sys.stdin = sys.__stdin__ = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open_output(1, sys.stdout)
    sys.stderr = sys.__stderr__ = open_output(2, sys.stderr)


def open_output(descriptor, before):
    """What Python makes of standard output and standard error when it starts."""
    is_unbuffered = before.write_through  # PYTHONUNBUFFERED is set
    return io.TextIOWrapper(
        open(descriptor, "wb", buffering=0 if is_unbuffered else -1, closefd=False),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=descriptor == 2 or os.isatty(descriptor),
        write_through=is_unbuffered,
    )


def main():
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        for module in PRELOADED:
            importlib.import_module(module)
        request = serve(connection)
    if request is not None:
        is_new_session, folder, *sys.argv = request
        if is_new_session:
            os.setsid()
        os.chdir(folder)
        run_main()


def run_main():
    """What `python ARGUMENTS` does with sys.argv."""
    if sys.argv[0] == "-m":
        del sys.argv[0]
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif sys.argv[0] == "-c":
        sys.path[0] = ""
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(sys.argv.pop(1), "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
