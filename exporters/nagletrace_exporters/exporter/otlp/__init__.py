# SPDX-License-Identifier: GPL-2.0
"""Hands the daemon's records on to an OTLP receiver."""
