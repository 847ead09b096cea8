# SPDX-License-Identifier: GPL-2.0
"""Puts the two ends of stalls together that two hosts have recorded."""
