# SPDX-License-Identifier: GPL-2.0
"""nagletrace-report: one HTML page."""
