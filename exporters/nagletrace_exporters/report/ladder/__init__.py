# SPDX-License-Identifier: GPL-2.0
"""Stalls as ladders: their choice, their model and their drawing."""
