"""Starts the student's side, as well contained as the machine allows, and says what is not.

On Linux a zygote runs inside bubblewrap: no network, no files but the system and the Python
environment, both read-only. Elsewhere every submission gets a cold process of its own, which keeps
the tests out of its reach and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import site
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from book.grading.channel import Channel, GoneError
from book.grading.engine import HUGE_PAGES

HERE = Path(__file__).resolve().parent
# All that the student's side may hold of the book.
FILES = tuple(
    f"{name}.py"
    for name in (
        "border",
        "channel",
        "confine",
        "packing",
        "pages",
        "remote",
        "seen",
        "student",
        "values",
    )
)
OPTION = "--unsafe-no-sandbox"
START_LIMIT = 120.0

_RISK = (
    "The students' code would run without containment: it could read and delete your files, "
    "use the network and leave processes behind.\n"
)
_ACCEPT = f"  Or accept the risk, for instance in a container made for this alone:  {OPTION}"
HOW_TO = (
    f"{_RISK}"
    "  Get a sandbox:  apt install bubblewrap   (with dnf and pacman it has the same name)\n"
    f"{_ACCEPT}"
)
# What bwrap and the students' side say when they may not make namespaces.
_REFUSALS = ("uid map", "namespace", "RTM_NEWADDR", "Operation not permitted", "Permission denied")
NAMESPACES = (
    f"The system does not let it make namespaces. {_RISK}"
    "  Ubuntu 23.10 and later (AppArmor): write to /etc/apparmor.d/bwrap\n"
    "      abi <abi/4.0>,\n"
    "      include <tunables/global>\n"
    "      profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }\n"
    "    and load it:  sudo apparmor_parser -r /etc/apparmor.d/bwrap\n"
    "    Or for all programs, until the next start of the machine:\n"
    "      sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\n"
    "  In a container: run on the host, or start it with --security-opt seccomp=unconfined "
    "(and apparmor=unconfined).\n"
    f"{_ACCEPT}"
)
NOT_CONTAINED = (
    "Not contained on this system: the students' code can read and change your files, use the "
    "network, leave processes behind and take memory. Hidden tests stay out of its process, so "
    "honest mistakes are graded alike; full marks of dishonest code are not proof. For that, grade "
    "on Linux with bubblewrap."
)


class SandboxError(RuntimeError):
    """The students' side cannot be started as asked; says what to do."""


def environment() -> dict[str, str]:
    """The variables of the student's side: one thread, and nothing of the teacher's."""
    one = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
    )
    return {
        **one, **HUGE_PAGES, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/w", "TMPDIR": "/w",
        "LANG": "C.UTF-8", "TZ": "UTC", "MPLBACKEND": "Agg", "MPLCONFIGDIR": "/w",
        "IPYTHONDIR": "/w", "PYTHONDONTWRITEBYTECODE": "1", "TORCHDYNAMO_DISABLE": "1",
        "PYTHONHASHSEED": "0",
    }  # fmt: skip


def _paths() -> list[Path]:
    """The folders of this Python and its packages, without those that lie in another of them."""
    wanted = {Path(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    wanted |= {Path(p) for p in sysconfig.get_paths().values() if Path(p).is_dir()}
    wanted |= {Path(p) for p in sys.path if Path(p).name in ("site-packages", "dist-packages")}
    wanted |= {Path(os.path.realpath(sys.executable)).parent}
    found: list[Path] = []
    for path in sorted(wanted, key=lambda p: len(p.parts)):
        if path.is_dir() and not any(path.is_relative_to(p) for p in (*found, Path("/usr"))):
            found.append(path)
    return found


def _bwrap(program: str, *, root: bool) -> list[str]:
    words = [program, "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-net",
             "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--clearenv"]  # fmt: skip
    if root:
        # To become another user inside; given up there at once.
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    for name, value in environment().items():
        words += ["--setenv", name, value]
    words += ["--ro-bind", "/usr", "/usr"]
    for top in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        path = Path(top)
        if path.is_symlink():
            words += ["--symlink", os.readlink(top), top]  # noqa: PTH115
        elif path.is_dir():
            words += ["--ro-bind", top, top]
    for name in ("/etc/ld.so.cache", "/etc/localtime"):
        words += ["--ro-bind-try", name, name]
    words += ["--proc", "/proc", "--dev", "/dev"]
    # What torch asks of the processor, and the C library of the memory.
    for name in ("/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage"):
        words += ["--ro-bind-try", name, name]
    for path in _paths():
        # The folders above are made for bwrap's own user, if nobody says for whom.
        for parent in reversed(path.parents[:-1]):
            words += ["--perms", "0755", "--dir", str(parent)]
        words += ["--ro-bind", str(path), str(path)]
    words += ["--perms", "0755", "--dir", "/engine", "--perms", "0755", "--dir", "/engine/book",
              "--perms", "0755", "--dir", "/engine/book/grading"]  # fmt: skip
    # Where the book is installed as a package, its checkers hold the answers.
    for folder in {Path(p) for p in (*sys.path, *site.getsitepackages())}:
        for package in ("book", "transformer_parts"):
            if folder.name.endswith("-packages") and (folder / package).is_dir():
                words += ["--tmpfs", str(folder / package), "--remount-ro", str(folder / package)]
    for name in FILES:
        words += ["--ro-bind", str(HERE / name), f"/engine/book/grading/{name}"]
    words += ["--perms", "1777", "--tmpfs", "/w"]
    # A Python that lives in /tmp keeps it: then there is room in the working folder only.
    if not any(path.is_relative_to("/tmp") for path in _paths()):
        words += ["--symlink", "/w", "/tmp"]
    words += ["--chdir", "/w", "--remount-ro", "/dev", "--remount-ro", "/"]
    return [*words, "--"]


_RUN = (
    "import sys; sys.path.insert(0, {engine!r}); sys.argv[0] = 'student'; "
    "import runpy; runpy.run_module('book.grading.student', run_name='__main__')"
)


class Zygote:
    """The forking student's side."""

    def __init__(self, *, confined: bool, preload: list[str]) -> None:
        self.confined = confined
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.asked, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words: list[str] = []
        engine = "/engine"
        if confined:
            program = shutil.which("bwrap")
            if program is None:
                raise SandboxError(f"bubblewrap (bwrap) is not installed.\n{HOW_TO}")
            words = _bwrap(program, root=os.geteuid() == 0)
        else:
            self.folder, engine = _engine_folder()
        settings = {"confined": confined, "preload": preload, "hide": [engine]}
        words += [sys.executable, "-I", "-c", _RUN.format(engine=engine), "zygote",
                  str(far.fileno()), json.dumps(settings)]  # fmt: skip
        try:
            self.process = subprocess.Popen(
                words, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL, env=environment(),
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            raise SandboxError(f"{words[0]}: {error.strerror}") from None
        far.close()

    def wait(self) -> None:
        """Wait until it can fork.

        Raises:
            SandboxError: if it cannot start, with the reason.
        """
        self.asked.settimeout(START_LIMIT)
        try:
            hello = json.loads(self.asked.recv(65536) or b"{}")
        except (OSError, ValueError):
            hello = {}
        self.asked.settimeout(None)
        if not hello.get("ready"):
            self.process.kill()
            said = (
                self.process.stderr.read().decode(errors="replace") if self.process.stderr else ""
            )
            reason = hello.get("error") or said.strip()[-600:] or "it ended without a word"
            raise SandboxError(f"the students' side did not start: {reason}{self._how(reason)}")

    def _how(self, reason: str) -> str:
        """What to do about it, if it is the sandbox that could not be made."""
        if not self.confined or "hreads before" in reason:
            return ""
        return "\n" + (NAMESPACES if any(r in reason for r in _REFUSALS) else HOW_TO)

    def probe(self, limits: dict[str, Any]) -> None:
        """Start a student's process, to see at once whether it can be confined.

        Raises:
            SandboxError: if not, with the reason and what to do.
        """
        session = self.session(limits)
        try:
            session.start(START_LIMIT)
        except SandboxError as error:
            reason = str(error).strip().splitlines()[-1]
            how = self._how(reason)
            raise SandboxError(f"a student's process did not start: {reason}{how}") from None
        finally:
            session.close()

    def session(self, limits: dict[str, Any]) -> Session:
        """A fresh process for a submission."""
        return Forked(self.asked, limits)

    def close(self) -> None:
        """End it, and with it whatever it started."""
        self.asked.close()
        self.process.kill()
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        if self.folder:
            self.folder.cleanup()


class Session:
    """One process in which the cells of a submission run."""

    channel: Channel
    # The process above all of its processes; 0 where there is none.
    keeper = 0

    def ask(self, head: dict[str, Any], limit: float) -> dict[str, Any]:
        """One question to the process.

        Raises:
            TimeoutError, EOFError, OSError, BorderError: if it does not answer as it should.
        """
        self.channel.connection.settimeout(limit)
        self.channel.send(head)
        return self.channel.receive(limit)[0]

    def start(self, limit: float) -> None:
        """Wait until cells can run.

        Raises:
            SandboxError: if the process cannot be made; no fault of the student's.
        """
        try:
            answer = self.ask({"op": "cell", "source": "", "name": "start"}, limit)
        except (OSError, EOFError) as error:
            raise SandboxError(f"a student's process did not start: {error!r}") from None
        if "fatal" in answer:
            raise SandboxError(f"a student's process did not start: {answer['fatal']}")

    def snapshot(self, limit: float) -> Channel | None:
        """A copy of the process as it is now, waiting to serve; None if there can be none."""
        return None

    def close(self) -> None:
        """End the process and all that it started."""


class Forked(Session):
    """A fork of the zygote."""

    def __init__(self, asked: socket.socket, limits: dict[str, Any]) -> None:
        self.control, control = socket.socketpair()
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        data, far = socket.socketpair()
        self.channel = Channel(data)
        try:
            socket.send_fds(asked, [json.dumps(limits).encode()], [control.fileno(), far.fileno()])
        except OSError:
            raise SandboxError("the zygote has ended") from None
        finally:
            control.close()
            far.close()

    def start(self, limit: float) -> None:
        """As for every session; and learn who the keeper is."""
        super().start(limit)
        self.control.settimeout(limit)
        _, ancillary, _, _ = self.control.recvmsg(1, socket.CMSG_SPACE(3 * 4))
        self.control.settimeout(None)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                # As this process sees it, whatever it is called where it lives.
                self.keeper = struct.unpack("3i", data[:12])[0]

    def snapshot(self, limit: float) -> Channel | None:
        """A fork of the process as it is now; None if it cannot fork any more."""
        near, far = socket.socketpair()
        with far:
            self.channel.connection.settimeout(limit)
            self.channel.send({"op": "snapshot"})
            socket.send_fds(self.channel.connection, [b"s"], [far.fileno()])
            answer, _ = self.channel.receive(limit)
        pid = answer.get("pid")
        if type(pid) is not int:
            raise GoneError("the code spoiled its own process")
        if pid < 0:
            near.close()
            return None
        return Channel(near)

    def close(self) -> None:
        """The keeper sees its socket close and ends all."""
        self.control.close()
        self.channel.connection.close()


class ColdStart:
    """The student's side where there is no safe fork."""

    confined = False

    def probe(self, limits: dict[str, Any]) -> None:
        """There is nothing that could be refused."""

    def wait(self) -> None:
        """There is nothing to wait for."""

    def session(self, limits: dict[str, Any]) -> Session:
        """A fresh process for a submission."""
        return Cold(limits)

    def close(self) -> None:
        """Nothing runs between submissions."""


class Cold(Session):
    """A process that has to import torch first."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self.folder, engine = _engine_folder()
        token = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(START_LIMIT)
            settings = json.dumps({"limits": limits, "hide": [engine]})
            kept = {k: os.environ[k] for k in ("SYSTEMROOT", "WINDIR", "DYLD_LIBRARY_PATH")
                    if k in os.environ}  # fmt: skip
            work = Path(self.folder.name) / "work"
            work.mkdir()
            places = dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP", "MPLCONFIGDIR", "IPYTHONDIR",
                                    "USERPROFILE"), str(work))  # fmt: skip
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", _RUN.format(engine=engine), "cold",
                 str(server.getsockname()[1]), token, settings],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**environment(), **kept, **places}, cwd=work,
                start_new_session=sys.platform != "win32",
            )  # fmt: skip
            try:
                while True:
                    connection, _ = server.accept()
                    connection.settimeout(START_LIMIT)
                    if connection.recv(len(token)) == token.encode():
                        break
                    connection.close()
            except OSError:
                self.process.kill()
                raise SandboxError("a student's process did not start in time") from None
        self.channel = Channel(connection)

    def close(self) -> None:
        """End the process and its group."""
        self.channel.connection.close()
        if sys.platform != "win32":
            import signal

            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            self.folder.cleanup()


def _engine_folder() -> tuple[tempfile.TemporaryDirectory[str], str]:
    """A folder with the files of the student's side, and its path."""
    folder = tempfile.TemporaryDirectory(prefix="grading-", ignore_cleanup_errors=True)
    package = Path(folder.name) / "book" / "grading"
    package.mkdir(parents=True)
    for name in FILES:
        shutil.copy(HERE / name, package / name)
    return folder, folder.name


def start(mode: str, preload: list[str]) -> Zygote | ColdStart:
    """The student's side, starting; `wait` until it is there.

    `mode`: "sandbox", "open" (the risk is accepted) or "cold".

    Raises:
        SandboxError: if there is no sandbox, with how to get one.
    """
    if mode == "cold" or not sys.platform.startswith("linux"):
        return ColdStart()
    return Zygote(confined=mode == "sandbox", preload=preload)
