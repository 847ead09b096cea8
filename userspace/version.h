/* SPDX-License-Identifier: GPL-2.0 */
/* The version, here and nowhere else. */
#ifndef NT_VERSION_H
#define NT_VERSION_H

#define NT_VERSION "0.1.0"

#endif /* NT_VERSION_H */
