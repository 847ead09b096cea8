-- SPDX-License-Identifier: GPL-2.0
-- Joins what has come, at once. A server does it by itself every 5 minutes.
SYSTEM REFRESH VIEW nagletrace.meet;
SYSTEM WAIT VIEW nagletrace.meet;
SYSTEM REFRESH VIEW nagletrace.dismiss;
SYSTEM WAIT VIEW nagletrace.dismiss;
