"""The student's side: runs the cells of one submission, confined, and serves calls of the tests.

`zygote` is a process that has imported torch and nothing of the submissions. It forks once for each
submission: a keeper, which makes new namespaces, and in them a first process, which collects what
ends, and the student's own, which has no capabilities, no network and no files but a small private
folder. Where a test will come, the student's process forks a snapshot and goes on: so the tests
find the state of their place in the notebook, and no cell runs after a hidden test has been seen.

`cold` is the same without forks, for systems that have no safe one.

Nothing here holds a secret. This file, `border`, what these two import, and torch are all that the
sandbox contains.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import signal
import socket
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book.grading.channel import Channel
from book.grading.confine import (
    PR_SET_PDEATHSIG,
    WORK,
    become_nobody,
    c_library,
    drop,
    keep_only,
    unshare,
)

OUTPUT_LIMIT = 20_000


# ---- the cells


class Capped(io.TextIOBase):
    """A text stream that keeps the beginning and counts the rest."""

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self.limit = limit
        self.kept: list[str] = []
        self.room = limit
        self.cut = 0

    def writable(self) -> bool:
        """It can be written to."""
        return True

    def write(self, text: str) -> int:
        """Keep what fits."""
        if self.room > 0:
            self.kept.append(str(text)[: self.room])
        self.cut += max(0, len(text) - max(self.room, 0))
        self.room -= len(text)
        return len(text)

    def text(self) -> str:
        """What was kept."""
        return "".join(self.kept)


class Cells:
    """Runs cells as a notebook does, one after the other in one namespace."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.namespace: dict[str, Any] = shell.user_ns if shell else {"__name__": "__main__"}

    def run(self, source: str, name: str) -> dict[str, Any]:
        """Run one cell. What it printed, how much was cut, and the error, if there was one."""
        out = Capped()
        error = None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                error = self._run(source, name)
            except BaseException as caught:  # SystemExit and KeyboardInterrupt too
                error = caught
        return {
            "out": out.text(),
            "cut": out.cut,
            "error": None if error is None else _told(error, source, name),
        }

    def _run(self, source: str, name: str) -> BaseException | None:
        if self.shell is None:
            exec(compile(source, f"<{name}>", "exec"), self.namespace)
            return None
        self.shell.showtraceback = self.shell.showsyntaxerror = lambda *a, **k: None
        # A kernel's asynchronous runner would start threads that a snapshot loses.
        result = self.shell.run_cell(source, store_history=False)
        found: BaseException | None = result.error_before_exec or result.error_in_exec
        return found


def _told(error: BaseException, source: str, name: str) -> dict[str, Any]:
    """An error for the feedback: what it says, and which lines of the student's it came through."""
    try:
        text = str(error)[:1000]
    except BaseException:
        text = ""
    lines = source.splitlines()
    frames = []
    with contextlib.suppress(BaseException):
        for frame in traceback.extract_tb(error.__traceback__)[-30:]:
            if frame.filename.startswith(("<", "/tmp/ipykernel", "/w/")) and frame.lineno:
                line = frame.line or (
                    lines[frame.lineno - 1] if 0 < frame.lineno <= len(lines) else ""
                )
                frames.append(f"line {frame.lineno}, in {frame.name}: {line.strip()}"[:200])
        if isinstance(error, SyntaxError) and error.lineno:
            frames.append(f"line {error.lineno}: {(error.text or '').strip()}"[:200])
    return {"name": type(error).__name__[:80], "text": text, "lines": frames[-5:]}


def make_shell() -> Any:
    """IPython's shell without its history, which would start a thread; None without IPython."""
    try:
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config
    except ImportError:
        return None
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    with contextlib.suppress(Exception):
        shell = InteractiveShell.instance(config=config)
        shell.showtraceback = shell.showsyntaxerror = lambda *a, **k: None
        # The first cell would pay for what the shell imports only then.
        with contextlib.redirect_stdout(io.StringIO()):
            shell.run_cell("None", store_history=False)
        return shell
    return None


def install_stubs() -> None:
    """Let cells import the book's checkers: in the sandbox they check nothing, for the tests do.

    The checkers hold the answers, so they are not there.
    """

    def later(name: str, *_: object, **__: object) -> None:
        print(f"{name}: checked when the assignment is graded")

    for name in ("book", "book.grading", "book.checkers"):
        module = types.ModuleType(name)
        module.__path__ = []
        sys.modules[name] = module
    sys.modules["book"].checkers = sys.modules["book.checkers"]  # type: ignore[attr-defined]
    sys.modules["book"].grading = sys.modules["book.grading"]  # type: ignore[attr-defined]
    sys.modules["book.checkers"].check = later  # type: ignore[attr-defined]
    sys.modules["book.grading"].require = later  # type: ignore[attr-defined]
    sys.modules["book.grading"].require_points = later  # type: ignore[attr-defined]


def student(connection: socket.socket, shell: Any, border: Any) -> None:
    """Run cells and make snapshots, as the trusted side asks; it does not return."""
    channel, cells = Channel(connection), Cells(shell)
    while True:
        m, _ = channel.receive()
        if m["op"] == "cell":
            channel.send(cells.run(m["source"], m["name"]))
        elif m["op"] == "serve":
            serve(connection, cells.namespace, border)
        elif m["op"] == "snapshot":
            _, fds, _, _ = socket.recv_fds(connection, 1, 1)
            try:
                pid = os.fork()
            except OSError:  # the student's own processes have used up the limit
                pid = -1
            if pid == 0:
                connection.close()
                serve(socket.socket(fileno=fds[0]), cells.namespace, border)
            os.close(fds[0])
            channel.send({"pid": pid})


def serve(connection: socket.socket, namespace: dict[str, Any], border: Any) -> None:
    """Answer the calls of tests; ends this process."""
    peer = border.Peer(Channel(connection), trusted=False, namespace=namespace)
    with contextlib.suppress(BaseException):
        while True:
            m, blobs = peer.channel.receive()
            if m["op"] == "renew":
                peer = border.Peer(peer.channel, trusted=False, namespace=namespace)
                continue
            with contextlib.redirect_stdout(Capped(0)), contextlib.redirect_stderr(Capped(0)):
                peer.answer(m, blobs)
    os._exit(0)


# ---- forks


def keep(control: socket.socket, data: socket.socket, limits: dict[str, Any], shell: Any,
         border: Any, *, confined: bool) -> None:  # fmt: skip
    """The keeper of one submission; when `control` closes, it ends all that the student started."""
    libc = c_library()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # With it the kernel says which process this is, for those who look after its memory.
    control.send(b"k")
    if confined:
        unshare(libc, limits["disk_mb"])
    first = os.fork()
    if first == 0:
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.setsid()
            control.close()
            keep_only(data.fileno())
            if confined:
                os.chdir(WORK)
            drop(libc, limits, confined=confined)
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                student(data, shell, border)
            data.close()
            # The first process of a namespace is told of every process that loses its parent.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.wait()
        except BaseException:
            # In place of the first answer; the trusted side shows it.
            with contextlib.suppress(BaseException):
                Channel(data).send({"fatal": traceback.format_exc()[-1500:]})
        finally:
            os._exit(0)
    data.close()
    with contextlib.suppress(OSError):
        control.recv(1)
    with contextlib.suppress(OSError):
        os.killpg(first, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(first, signal.SIGKILL)
    os._exit(0)


def warm_up(torch: Any) -> None:
    """Let torch do once, for all forks, what it does at a first call.

    It asks the processor what it can do, from files that a submission cannot see.
    """
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.ones(2, 3, dtype=dtype, requires_grad=True)
        y = torch.nn.functional.layer_norm(x @ x.T, (2,)).softmax(-1).exp().rsqrt().sum()
        # A gradient that is given imports half a second of torch; one that is not, does not.
        torch.autograd.grad(y, x, torch.ones_like(y))
    state = torch.get_rng_state()
    torch.randn(3)
    torch.set_rng_state(state)


def tasks() -> int:
    """How many threads this process has."""
    return len(os.listdir("/proc/self/task")) if Path("/proc/self/task").is_dir() else 1  # noqa: PTH208


def _size_mb() -> int:
    """The address space of this process, in MB."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE") >> 20
    return 0


def zygote(descriptor: int, settings: dict[str, Any]) -> None:
    """Import once, then fork for every submission whose two sockets come over `descriptor`."""
    asked = socket.socket(fileno=descriptor)
    confined = settings["confined"]
    if confined:
        become_nobody()
    import torch

    from book.grading import border, pages, seen

    torch.set_num_threads(1)
    shell = make_shell()
    for name in settings["preload"]:
        with contextlib.suppress(BaseException):
            __import__(name)
    warm_up(torch)
    seen.warm_up()
    install_stubs()
    sys.path[:] = [p for p in sys.path if p not in settings["hide"]]
    if (threads := tasks()) != 1:
        # A fork copies one thread, and the locks that the others hold.
        if settings["preload"]:
            # Let each submission import the package that starts threads when imported.
            words = ["zygote", str(descriptor), json.dumps({**settings, "preload": []})]
            os.set_inheritable(descriptor, True)
            os.execv(sys.executable, [*sys.orig_argv[: sys.orig_argv.index("zygote")], *words])
        asked.send(json.dumps({"error": f"{threads} threads before the first fork"}).encode())
        return
    asked.send(json.dumps({"ready": True, "version": torch.__version__}).encode())
    size = _size_mb()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    pages.collapse()
    while True:
        message, fds, _, _ = socket.recv_fds(asked, 65536, 2)
        if not message:
            return
        if os.fork() == 0:
            asked.close()
            control, data = (socket.socket(fileno=fd) for fd in fds)
            try:
                limits = {**json.loads(message), "size_mb": size}
                keep(control, data, limits, shell, border, confined=confined)
            except BaseException:
                with contextlib.suppress(BaseException):
                    Channel(data).send({"fatal": traceback.format_exc()[-1500:]})
            os._exit(0)
        for fd in fds:
            os.close(fd)


def cold(port: int, token: str, settings: dict[str, Any]) -> None:
    """One process for one submission, connected over the loopback. Not contained."""
    import torch

    from book.grading import border

    torch.set_num_threads(1)
    shell = make_shell()
    install_stubs()
    sys.path[:] = [p for p in sys.path if p not in settings["hide"]]
    if sys.platform != "win32":
        with contextlib.suppress(BaseException):
            _cold_limits(settings["limits"])
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(token.encode())
    student(connection, shell, border)


def _cold_limits(limits: dict[str, Any]) -> None:
    import resource

    for name, value in (
        (resource.RLIMIT_CPU, int(limits["cpu"])),
        (resource.RLIMIT_FSIZE, limits["file_mb"] << 20),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (value, value))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, ((limits["memory_mb"] + _size_mb()) << 20,) * 2)


def _words() -> Iterator[str]:
    yield from sys.argv[1:]


if __name__ == "__main__":
    kind, *words = _words()
    if kind == "zygote":
        zygote(int(words[0]), json.loads(words[1]))
    else:
        cold(int(words[0]), words[1], json.loads(words[2]))
