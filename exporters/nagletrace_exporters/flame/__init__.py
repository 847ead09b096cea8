# SPDX-License-Identifier: GPL-2.0
"""nagletrace-flame: excess by call stack."""
