# SPDX-License-Identifier: GPL-2.0
"""Readers of the nagletrace daemon."""

#: that of userspace/version.h
__version__ = "0.1.0"
