# SPDX-License-Identifier: GPL-2.0
"""Takes from this process, for good, all but reading: what it reads, others wrote. By libc and libseccomp."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from pathlib import Path

#: Capabilities to read other users' files and processes, by their bits; <linux/capability.h>.
DAC_READ_SEARCH, SYS_PTRACE = 1 << 2, 1 << 19
NOBODY = 65534
#: Capabilities outlive the change of user, in access() too; <linux/prctl.h>, <linux/securebits.h>.
PR_SET_SECUREBITS, NO_SETUID_FIXUP = 28, 1 << 2
#: <linux/capability.h> and libseccomp's <seccomp.h>.
CAPABILITY_VERSION_3, ALLOW, REFUSE, MASKED_EQ = 0x20080522, 0x7FFF0000, 0x00050000 | errno.EPERM, 7
#: Calls that do more than read and that need no capability. Those that do need one are refused for lack of it.
REFUSED = """
    execve execveat ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd pidfd_send_signal kill tkill
    tgkill rt_sigqueueinfo rt_tgsigqueueinfo
    socket connect bind listen accept accept4
    creat truncate unlink unlinkat rmdir rename renameat renameat2 link linkat symlink symlinkat mkdir mkdirat mknod
    mknodat chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat setxattr lsetxattr fsetxattr setxattrat
    removexattr lremovexattr fremovexattr removexattrat utime utimes futimesat utimensat openat2
    bpf perf_event_open userfaultfd add_key request_key keyctl unshare io_uring_setup"""


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64)]


def checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno() if result == -1 else -result
        raise OSError(number, os.strerror(number))


def confine() -> None:
    """Gives up the user root and all capabilities but two. Then the kernel refuses calls. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:  # root's files are root's without any capability
        checked(libc.prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0))
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    [permitted] = re.findall(r"^CapPrm:\s+(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    keep = int(permitted, 16) & (DAC_READ_SEARCH | SYS_PTRACE)
    checked(libc.capset((ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)(keep, keep)))
    refuse_calls()


def refuse_calls() -> None:
    """Sets no_new_privs besides, as seccomp_load() does. Raises OSError."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ALLOW))

    def refuse(name: str, *when: Comparison) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number != -1:  # this library does not know it
            checked(library.seccomp_rule_add_array(rules, REFUSE, number, len(when), (Comparison * len(when))(*when)))

    for name in REFUSED.split():
        refuse(name)
    for name, flags in (("open", 1), ("openat", 2)):
        for mask, value in ((os.O_ACCMODE, os.O_WRONLY), (os.O_ACCMODE, os.O_RDWR), (os.O_CREAT, os.O_CREAT),
                            (os.O_TRUNC, os.O_TRUNC)):
            refuse(name, Comparison(flags, MASKED_EQ, mask, value))
    checked(library.seccomp_load(rules))
