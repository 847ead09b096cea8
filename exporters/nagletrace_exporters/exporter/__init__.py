# SPDX-License-Identifier: GPL-2.0
"""nagletrace-exporter: the daemon's counts for Prometheus."""
