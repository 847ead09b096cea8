/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds those of the kernel's types that an object names. libbpf would look for each of them among
 * all, of which there are over 100,000, and read all of them once more.
 */
#pragma once

struct btf;

/*
 * Writes to the file the kernel's structures, unions and enumerations that the object has by name,
 * and what lies in them. A pointer leads to void: CO-RE follows none. Returns 0 or -errno.
 */
int nt_types_write(int file, const struct btf *kernel, const struct btf *object);
