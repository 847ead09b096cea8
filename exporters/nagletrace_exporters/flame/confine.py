# SPDX-License-Identifier: GPL-2.0
"""Leaves this process nothing but reading, for good, since others wrote what it reads. It uses libc and libseccomp."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import termios
from pathlib import Path

#: Capabilities by their bits: <linux/capability.h>. The first two read other users' files and processes.
DAC_READ_SEARCH, SYS_PTRACE, CHANGES_USER = 1 << 2, 1 << 19, 1 << 6 | 1 << 7 | 1 << 8
CAPABILITY_VERSION_3 = 0x20080522
NOBODY = 65534
#: A user namespace that has all users, as the first one has.
ALL_USERS = ["0", "0", "4294967295"]
#: Capabilities outlive the change of user, in access() too: <linux/prctl.h>, <linux/securebits.h>.
PR_SET_SECUREBITS, NO_SETUID_FIXUP = 28, 1 << 2
#: <seccomp.h> of libseccomp.
ALLOW, REFUSE, NOT_EQUAL, MASKED_EQUAL = 0x7FFF0000, 0x00050000, 1, 7
#: Calls that do more than read. The tracer refuses them too, and says why: userspace/privileges/refusals.c.
REFUSED = """
    execve execveat ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd pidfd_send_signal
    rt_sigqueueinfo rt_tgsigqueueinfo kcmp
    creat truncate rename renameat renameat2 link linkat symlink symlinkat mkdir mkdirat mknod mknodat chmod fchmod
    fchmodat fchmodat2 chown lchown fchown fchownat setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr
    fremovexattr removexattrat file_setattr utime utimes futimesat utimensat name_to_handle_at open_by_handle_at
    fanotify_init quotactl quotactl_fd
    connect bind listen
    setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset setns unshare chroot
    pivot_root mount umount2 mount_setattr move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct syslog settimeofday
    clock_settime clock_adjtime adjtimex sethostname setdomainname iopl ioperm modify_ldt vhangup perf_event_open
    userfaultfd add_key request_key keyctl lookup_dcookie io_uring_setup io_uring_enter io_uring_register
    socket accept accept4 bpf unlink unlinkat rmdir mq_open"""
#: Without these, whose arguments a filter cannot see, the C library uses older calls.
UNKNOWN = ("openat2", "clone3")
#: Namespaces: the CLONE_NEW… of <sched.h>.
NEW_SPACES = tuple(1 << bit for bit in (17, 25, 26, 27, 28, 29, 30))
#: Requests that type for the terminal's user, signal another process, or change a file: TIOCLINUX, SIOCSPGRP,
#: FIOSETOWN, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR by their numbers.
REQUESTS = (("ioctl", termios.TIOCSTI), ("ioctl", 0x541C), ("ioctl", 0x8901), ("ioctl", 0x8902),
            ("ioctl", 0x40086602), ("ioctl", 0x401C5820), ("fcntl", fcntl.F_SETOWN), ("fcntl", fcntl.F_SETSIG),
            ("fcntl", 15))  # F_SETOWN_EX


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def confine() -> None:
    """Gives up the user root and all capabilities but two. Then the kernel refuses calls. Raises OSError.

    Root stays root where it is not the host's, or may not read other users' processes as another user.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(result: int) -> None:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    [text] = re.findall(r"^CapPrm:\s+(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    permitted = int(text, 16)
    needed = CHANGES_USER | SYS_PTRACE
    users = Path("/proc/self/uid_map").read_text().split()
    if os.geteuid() == 0 and permitted & needed == needed and users == ALL_USERS:
        call(libc.prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0))
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    keep = permitted & (DAC_READ_SEARCH | SYS_PTRACE)
    call(libc.capset((ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)(keep, keep)))
    refuse_calls()


def refuse_calls() -> None:
    """Sets no_new_privs besides, as seccomp_load() does. Raises OSError."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ALLOW))

    def call(result: int) -> None:
        if result < 0:
            raise OSError(-result, f"libseccomp: {os.strerror(-result)}")

    def refuse(name: str, *when: Comparison, number: int = errno.EPERM) -> None:
        known = library.seccomp_syscall_resolve_name(name.encode())
        if known != -1:
            call(library.seccomp_rule_add_array(rules, REFUSE | number, known, len(when),
                                                (Comparison * len(when))(*when)))

    for name in REFUSED.split():
        refuse(name)
    for name in UNKNOWN:
        refuse(name, number=errno.ENOSYS)
    for name, flags in (("open", 1), ("openat", 2)):
        for mask, value in ((os.O_ACCMODE, os.O_WRONLY), (os.O_ACCMODE, os.O_RDWR), (os.O_ACCMODE, os.O_ACCMODE),
                            (os.O_CREAT, os.O_CREAT), (os.O_TRUNC, os.O_TRUNC)):
            refuse(name, Comparison(flags, MASKED_EQUAL, mask, value))
    for name in ("kill", "tkill", "tgkill"):
        refuse(name, Comparison(0, NOT_EQUAL, os.getpid()))
    refuse("prlimit64", Comparison(0, NOT_EQUAL, 0))
    for space in NEW_SPACES:
        refuse("clone", Comparison(0, MASKED_EQUAL, space, space))
    for name, request in REQUESTS:
        refuse(name, Comparison(1, MASKED_EQUAL, 0xFFFFFFFF, request))
    call(library.seccomp_load(rules))
