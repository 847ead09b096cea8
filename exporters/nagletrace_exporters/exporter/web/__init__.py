# SPDX-License-Identifier: GPL-2.0
"""Serves the exporter's pages over HTTP."""
