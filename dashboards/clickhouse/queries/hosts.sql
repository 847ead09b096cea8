-- SPDX-License-Identifier: GPL-2.0
-- What each host tells, and first who tells nothing, or lines that cannot be read. A stream has totals each minute: alert
-- where silent_minutes is 5 or more, or where refused_lines (of this hour and the last) is not 0. A host that is gone for
-- good stays as long as its records do. Where complete (of the last day) is far below 1, the host's records lack something,
-- and it contradicts little.
SELECT host, max(last) AS last_line, intDiv(dateDiff('second', last_line, now64(6, 'UTC')), 60) AS silent_minutes,
       sum(lines) AS refused_lines, round(max(share), 2) AS complete
FROM (
    SELECT host, max(time) AS last, 0 AS lines,
           ifNotFinite(avgIf(complete, kind = 'report' AND time > now64(6, 'UTC') - INTERVAL 1 DAY), 0) AS share
    FROM nagletrace.runs GROUP BY host
    UNION ALL
    SELECT host, toDateTime64(0, 6, 'UTC'), sum(lines), 0
    FROM nagletrace.refused WHERE hour > now('UTC') - INTERVAL 2 HOUR GROUP BY host
)
GROUP BY host
ORDER BY refused_lines DESC, silent_minutes DESC LIMIT 100;
