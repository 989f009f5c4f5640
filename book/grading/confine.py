"""How a student's process is confined on Linux: namespaces, capabilities, limits, system calls.

Nothing here holds a secret: it is part of what enters the sandbox, with `student`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

WORK = "/w"

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_RDONLY, _MS_REC, _MS_PRIVATE = 2, 4, 8, 1, 16384, 1 << 18
PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_NO_NEW_PRIVS = 38


def c_library() -> Any:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(libc: Any, tmp_mb: int) -> None:
    """New namespaces for the caller's children, and an empty folder to work in."""
    user, group = os.getuid(), os.getgid()
    # A process that gave up root may write its own maps only if it may be looked at.
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    _checked(libc.unshare(_NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC), "making new namespaces")
    for name, value in (
        ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"),
    ):  # fmt: skip
        Path(f"/proc/self/{name}").write_text(value, encoding="ascii")
    # No namespaces inside these; where the kernel does not let us say so, they bring nothing.
    with contextlib.suppress(OSError):
        Path("/proc/sys/user/max_user_namespaces").write_text("0", encoding="ascii")
    _checked(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "private mounts")
    options = f"size={tmp_mb}m,nr_inodes=20000,mode=700".encode()
    _checked(
        libc.mount(b"tmpfs", WORK.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, options),
        "mounting the work folder",
    )
    _checked(
        libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", _MS_NOSUID | _MS_NODEV, options),
        "mounting the shared memory",
    )
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Other submissions of this run are visible in /proc of the outer namespace.
    hidden = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_RDONLY
    _checked(libc.mount(b"tmpfs", b"/proc", b"tmpfs", hidden, b"size=4k"), "covering /proc")


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32),
                ("inheritable", ctypes.c_uint32))  # fmt: skip


def drop(libc: Any, limits: dict[str, Any], *, confined: bool) -> None:
    """Give up every capability and every way to get one back; set the limits of the process."""
    import resource

    if confined:
        for capability in range(64):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        header, data = _CapHeader(0x20080522, 0), (_CapData * 2)()
        _checked(libc.capset(ctypes.byref(header), ctypes.byref(data)), "dropping capabilities")
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    for name, value in (
        (resource.RLIMIT_CPU, int(limits["cpu"])),
        # Beside what every fork has; what all of its processes use is watched from outside.
        (resource.RLIMIT_AS, (limits["memory_mb"] + limits.get("size_mb", 0)) << 20),
        (resource.RLIMIT_FSIZE, limits["file_mb"] << 20),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # The process count of an unconfined user includes everything else that the user runs.
        if confined or name != resource.RLIMIT_NPROC:
            resource.setrlimit(name, (value, value))
    if confined:
        forbid_calls(libc)


# System calls that no assignment needs and that attacks on a kernel begin with, by machine.
_FORBIDDEN = {
    "x86_64": (
        0xC000003E,
        # ptrace, process_vm_readv/writev, mount, umount2, pivot_root, unshare, setns, bpf,
        # perf_event_open, userfaultfd, keyctl, add_key, request_key, init_module, finit_module,
        # kexec_load, io_uring_setup, open_by_handle_at, move_mount, fsopen, open_tree, vmsplice;
        # then memory that belongs to no process: memfd_create, memfd_secret, shmget, msgget
        (101, 310, 311, 165, 166, 155, 272, 308, 321, 298, 323, 250, 248, 249, 175, 313, 246,
         425, 304, 429, 430, 428, 278, 319, 447, 29, 68),
        41,
    ),
    "aarch64": (
        0xC00000B7,
        (117, 270, 271, 40, 39, 41, 97, 268, 280, 241, 282, 219, 217, 218, 105, 273, 104,
         425, 265, 429, 430, 428, 75, 279, 447, 194, 186),
        198,
    ),
}  # fmt: skip
# Sockets of other families reach past the namespaces: to a virtual machine's host, to the kernel.
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6) if hasattr(socket, "AF_UNIX") else ()


def forbid_calls(libc: Any) -> None:
    """A seccomp filter: the calls above fail with "not permitted". Other machines go without.

    So does `socket` for a family that is not among those that are needed.
    """
    if os.uname().machine not in _FORBIDDEN:
        return
    architecture, calls, of_socket = _FORBIDDEN[os.uname().machine]
    load, jump_eq, jump_ge, ret = 0x20, 0x15, 0x35, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050000 | 1, 0x80000000
    program = [
        (load, 0, 0, 4), (jump_eq, 1, 0, architecture), (ret, 0, 0, kill), (load, 0, 0, 0),
        # The 32-bit calls of x86_64 have other numbers.
        (jump_ge, 0, 1, 0x40000000), (ret, 0, 0, refuse),
    ]  # fmt: skip
    for call in calls:
        program += [(jump_eq, 0, 1, call), (ret, 0, 0, refuse)]
    # The first argument of `socket`: equal to one of them, it jumps to the last line but one.
    program += [(jump_eq, 0, len(_FAMILIES) + 2, of_socket), (load, 0, 0, 16)]
    program += [
        (jump_eq, len(_FAMILIES) - n, 0, int(one)) for n, one in enumerate(_FAMILIES)
    ]  # fmt: skip
    program += [(ret, 0, 0, refuse), (ret, 0, 0, allow)]
    code = b"".join(struct.pack("=HBBI", *one) for one in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    _checked(libc.prctl(_PR_SET_SECCOMP, 2, filter_, 0, 0), "the filter of system calls")


def keep_only(kept: int) -> None:
    """Close every file but one; nothing to read, and what is written in C goes nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, kept)
    os.closerange(kept + 1, 4096)
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123


def become_nobody() -> None:
    """A process of root's gives that up: root's processes are not counted against a limit."""
    if os.getuid() == 0:
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
