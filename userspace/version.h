/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The version. The Python package is installed by itself too and has it once more, in
 * exporters/nagletrace_exporters/__init__.py; tests/live/test_dist.py holds them together.
 */
#ifndef NT_VERSION_H
#define NT_VERSION_H

#define NT_VERSION "0.1.0"

#endif /* NT_VERSION_H */
