-- SPDX-License-Identifier: GPL-2.0
--
-- The join of stalls that two hosts have recorded, step by step: each `-- step:` makes one table of those before it.
-- engine.py makes the first one, `records`, a view that has a row for each line that is read:
--
--   source, line   which file, and the number of the line, of all files together
--   kind           start, streaming, stall, hold, late_ack, report; totals are a report
--   time_us        microseconds since the epoch, by the host's own clock
--   origin         the number of a host and its boot: records of one origin have one clock; 0: not known
--   ack_id         by which both hosts know the ACK, as a number; 0: not known
--   number         counts what one start of the tracer has reported; -1: not known
--   complete       of start and streaming: 1 where late ACKs are reported, and no filter leaves one out; 2: holds too;
--                  of report: nothing was dropped or left out by --max-late-acks, nothing unseen, the hooks were attached,
--                  and the key was one
--   by_sender, by_receiver   whether this origin saw that end
--   of_hold        of a hold: 1 where an ACK ended it that may have been late
--   sender, receiver         the addresses, as this origin sees them
--   duration_us, rtt_us, pending_us, and of report span_us
--   by_timer       the delayed-ACK timer sent the ACK: 1, or 2 if it found the socket locked, so that the ACK left later
--                  than pending_us says; else 0
--   evidence                 as the line says; only a stall has it
--   excess_us                as the line says; a stall has it, and a hold that an ACK ended
--   who            the number of the line's two processes
--
-- Addresses are read again where they are asked for, and are not carried along: most stalls have a partner, and a table of
-- numbers is small.
--
-- $window is how far apart two hosts' clocks may be, in microseconds. DuckDB runs this. ClickHouse joins by the same rules
-- in dashboards/clickhouse/schema.sql, and tests/clickhouse compares the answers.

-- step: repeated
-- ACKs of which one end is reported more than once: by several recordings, by a late ACK and a stall, or by chance. Only they
-- need to be put in order.
CREATE TEMP TABLE repeated AS
SELECT ack_id FROM records WHERE ack_id <> 0 AND by_sender <> by_receiver GROUP BY ack_id
HAVING count(*) FILTER (by_sender) > 1 OR count(*) FILTER (by_receiver) > 1;

-- step: senders
-- What a sender's host has alone: a stall that it infers, or a hold that was none to it. One line of each ACK,
-- whatever the number of recordings that have it.
CREATE TEMP TABLE senders AS
SELECT line, kind, time_us, origin, ack_id, duration_us, excess_us, rtt_us, who, 0 AS again
FROM records AS s ANTI JOIN repeated AS k ON k.ack_id = s.ack_id
WHERE s.by_sender AND NOT s.by_receiver AND s.ack_id <> 0 AND (s.kind = 'stall' OR s.of_hold = 1)
UNION ALL
SELECT line, kind, time_us, origin, ack_id, duration_us, excess_us, rtt_us, who, 1 FROM (
    SELECT s.*, row_number() OVER (PARTITION BY s.origin, s.ack_id ORDER BY s.kind DESC, s.source, s.line) AS place
    FROM (SELECT line, source, kind, time_us, origin, ack_id, duration_us, excess_us, rtt_us, who FROM records
          WHERE by_sender AND NOT by_receiver AND ack_id <> 0 AND (kind = 'stall' OR of_hold = 1)) AS s
    SEMI JOIN repeated AS k ON k.ack_id = s.ack_id
) AS one WHERE place = 1;

-- step: receivers
-- What a receiver's host has alone: a late ACK, or a stall that it infers. Of both for one ACK the late ACK has the
-- time at which it went out.
CREATE TEMP TABLE receivers AS
SELECT line, kind, time_us, origin, ack_id, pending_us, by_timer, who
FROM records AS r ANTI JOIN repeated AS k ON k.ack_id = r.ack_id
WHERE NOT r.by_sender AND r.by_receiver AND r.ack_id <> 0 AND r.kind IN ('late_ack', 'stall')
UNION ALL
SELECT line, kind, time_us, origin, ack_id, pending_us, by_timer, who FROM (
    SELECT r.*, row_number() OVER (PARTITION BY r.origin, r.ack_id ORDER BY r.kind, r.source, r.line) AS place
    FROM (SELECT line, source, kind, time_us, origin, ack_id, pending_us, by_timer, who FROM records
          WHERE NOT by_sender AND by_receiver AND ack_id <> 0 AND kind IN ('late_ack', 'stall')) AS r
    SEMI JOIN repeated AS k ON k.ack_id = r.ack_id
) AS one WHERE place = 1;

-- step: near_ones
-- Both ends of one ACK, as far as the clocks may be apart. The excess is what the hold lasted beyond the way of a prompt ACK:
-- for so long at most was the ACK pending in the hold (in_hold_us). By the rules of one host (bpf/judge.h, nt_late_evidence())
-- bytes that were written while the ACK was on its way waited for that way, unless a locked socket kept the ACK for longer;
-- and an ACK that was sent for another reason than the timer is late only from 30 ms on: else the pair is no stall.
CREATE TEMP VIEW near_ones AS
SELECT *, CASE WHEN in_hold_us >= 1000 AND (by_timer >= 1 OR pending_us >= 30000)
                   AND (2 * in_hold_us >= excess_us OR by_timer = 2 AND in_hold_us >= 30000)
               THEN 1 ELSE 0 END AS stalled
FROM (
    SELECT s.ack_id AS ack_id, s.line AS s_line, s.time_us AS s_time_us, s.origin AS s_origin, s.duration_us AS duration_us,
           s.excess_us AS excess_us, s.rtt_us AS rtt_us, s.who AS s_who, r.line AS r_line, r.kind AS r_kind,
           r.time_us AS r_time_us, r.origin AS r_origin, r.pending_us AS pending_us, r.by_timer AS by_timer,
           r.who AS r_who, s.again AS again, least(r.pending_us, s.excess_us) AS in_hold_us
    FROM senders AS s INNER JOIN receivers AS r ON s.ack_id = r.ack_id
    WHERE s.origin <> r.origin AND abs(s.time_us - r.time_us) <= $window
) AS both_ends;

-- step: pairs
-- Of them the nearest in time, and each in one pair only.
CREATE TEMP TABLE pairs AS
SELECT ack_id, s_line, s_time_us, s_origin, duration_us, excess_us, rtt_us, s_who, r_line, r_kind, r_time_us, r_origin,
       r_who, stalled
FROM near_ones WHERE again = 0
UNION ALL
SELECT ack_id, s_line, s_time_us, s_origin, duration_us, excess_us, rtt_us, s_who, r_line, r_kind, r_time_us, r_origin,
       r_who, stalled
FROM (
    SELECT *, row_number() OVER (PARTITION BY r_line ORDER BY apart_us, s_line) AS r_place
    FROM (
        SELECT *, abs(s_time_us - r_time_us) AS apart_us,
               row_number() OVER (PARTITION BY s_line ORDER BY abs(s_time_us - r_time_us), r_line) AS s_place
        FROM near_ones WHERE again = 1
    ) AS nearest_of_s WHERE s_place = 1
) AS nearest_of_both WHERE r_place = 1;

-- step: clocks
-- How far the sender's clock is ahead of the receiver's: the ACK takes half a round trip. A late ACK says when it went
-- out; without one, the receiver's stall ended about a round trip later. The median, of how often each value is there:
-- these are few, however many pairs there are.
CREATE TEMP TABLE clocks AS
SELECT s_origin, r_origin, max(until) AS acks,
       CAST((min(twice_us) FILTER (until >= (acks + 1) // 2) + min(twice_us) FILTER (until >= acks // 2 + 1)) / 4 AS BIGINT)
           AS ahead_us
FROM (
    SELECT *, sum(acks_here) OVER (PARTITION BY s_origin, r_origin ORDER BY twice_us) AS until,
           sum(acks_here) OVER (PARTITION BY s_origin, r_origin) AS acks
    FROM (
        SELECT s_origin, r_origin, count(*) AS acks_here,
               2 * (s_time_us - r_time_us) + CASE WHEN r_kind = 'late_ack' THEN -rtt_us ELSE rtt_us END AS twice_us
        FROM pairs GROUP BY ALL
    ) AS counted
) AS summed GROUP BY s_origin, r_origin;

-- step: turns
-- The lines of which a recording tells, but those that go on from the line before, as nearly all do: the same origin, and
-- the next number. Besides, the line before each of these, and the last one of all, which go on unless they stand here
-- themselves. So nothing is missing before a line that goes on, nor before one whose number follows that of another here.
CREATE TEMP TABLE turns AS
WITH following AS (
    SELECT source, line, kind, origin, time_us, number, complete,
           lag(source) OVER () AS source_0, lag(line) OVER () AS line_0, lag(kind) OVER () AS kind_0,
           lag(origin) OVER () AS origin_0, lag(time_us) OVER () AS time_0_us, lag(number) OVER () AS number_0
    FROM records WHERE number >= 0 AND (origin <> 0 OR kind = 'report')
), turning AS (
    SELECT * FROM following
    WHERE origin = 0 OR kind IN ('start', 'streaming', 'report') OR source IS DISTINCT FROM source_0
       OR origin IS DISTINCT FROM origin_0 OR number <> number_0 + 1
)
SELECT line, any_value(source) AS source, any_value(kind) AS kind, any_value(origin) AS origin,
       any_value(time_us) AS time_us, any_value(number) AS number, any_value(complete) AS complete, min(goes_on) AS goes_on
FROM (
    SELECT line, source, kind, origin, time_us, number, complete, 0 AS goes_on FROM turning
    UNION ALL
    SELECT line_0, source_0, kind_0, origin_0, time_0_us, number_0, 1, 1 FROM turning
    WHERE kind_0 NOT IN ('start', 'streaming', 'report')
    UNION ALL
    SELECT max(line), max_by(source, line), max_by(kind, line), max_by(origin, line), max_by(time_us, line),
           max_by(number, line), 1, 1 FROM following WHERE kind IN ('stall', 'hold', 'late_ack') HAVING count(*) > 0
) AS with_those_before GROUP BY line;

-- step: numbered
-- With the number that each should have. A report that names no host is of the recording's only one, or of that of the
-- line before it. Where a file is large, DuckDB's threads read parts of it in any order, so that numbers say what comes first.
-- Lines say it only where a recording has been started anew, which makes its numbers begin again.
CREATE TEMP TABLE numbered AS
SELECT *, lag(number) OVER in_order AS number_before, lag(time_us) OVER in_order AS time_before_us
FROM (
    SELECT *, CASE WHEN sum(starts) OVER (PARTITION BY source, origin) > 1
                   THEN sum(starts) OVER (PARTITION BY source, origin ORDER BY line) ELSE 0 END AS run
    FROM (
        SELECT source, line, kind, origin, time_us, number, complete, goes_on,
               CASE WHEN kind IN ('start', 'streaming') THEN 1 ELSE 0 END AS starts
        FROM turns WHERE origin <> 0
        UNION ALL
        SELECT r.source, r.line, r.kind, coalesce(one.origin, t.origin), r.time_us, r.number, r.complete, r.goes_on, 0
        FROM (SELECT * FROM turns WHERE origin = 0) AS r
        ASOF LEFT JOIN (SELECT * FROM turns WHERE origin <> 0) AS t ON t.source = r.source AND t.line < r.line
        LEFT JOIN (SELECT source, min(origin) AS origin FROM turns WHERE origin <> 0 GROUP BY source
                   HAVING count(DISTINCT origin) = 1) AS one ON one.source = r.source
        WHERE coalesce(one.origin, t.origin) IS NOT NULL
    ) AS of_origins
) AS of_runs
WINDOW in_order AS (PARTITION BY source, origin ORDER BY run, starts DESC, number, kind = 'report', line);

-- step: reports
-- Of which time a report speaks, and whether nothing is lacking in it. They follow one another up to a tenth of a second.
CREATE TEMP TABLE reports AS
SELECT n.source AS source, n.origin AS origin, n.complete AS complete, n.time_us - r.span_us - 100000 AS from_us,
       n.time_us AS to_us
FROM numbered AS n INNER JOIN records AS r ON r.line = n.line
WHERE n.kind = 'report';

-- step: gaps
-- Times of which a recording may lack something: its numbers do not go on, it was started anew, or a report says so. Two
-- seconds more at either side, since records that wait for a process's name come a little later than others.
CREATE TEMP TABLE gaps AS
SELECT source, origin, from_us - 2000000 AS from_us, to_us + 2000000 AS to_us
FROM (
    SELECT source, origin, least(time_before_us, time_us) AS from_us, greatest(time_before_us, time_us) AS to_us
    FROM numbered
    WHERE number_before IS NOT NULL AND starts = 0 AND goes_on = 0
      AND number <> number_before + CASE WHEN kind = 'report' THEN 0 ELSE 1 END
    UNION ALL
    SELECT source, origin, time_before_us, time_us FROM numbered WHERE number_before IS NOT NULL AND starts = 1
    UNION ALL
    SELECT source, origin, from_us, to_us FROM reports WHERE complete = 0
) AS lacking;

-- step: witnesses
-- Recordings that would have a late ACK if there had been one, from their first line on; where of_holds is 1, a hold too.
-- A report has to say so of the time.
CREATE TEMP TABLE witnesses AS
SELECT source, origin, min(time_us) AS from_us,
       min(CASE WHEN kind IN ('start', 'streaming') THEN complete ELSE 2 END) - 1 AS of_holds
FROM numbered GROUP BY source, origin
HAVING sum(CASE WHEN kind IN ('start', 'streaming') THEN 1 ELSE 0 END) > 0
   AND min(CASE WHEN kind = 'report' THEN 1 ELSE complete END) >= 1;

-- step: alone
-- Stalls that one host infers, and no other has a part of, at whatever time (somebody may have set its clock), with both
-- addresses as it has them. What a receiver's host infers only a sender's host with all its holds can deny.
CREATE TEMP TABLE alone AS
SELECT r.source AS source, r.line AS line, r.origin AS origin, r.time_us AS time_us, 1 AS by_sender, r.sender AS own,
       r.receiver AS far
FROM records AS r
SEMI JOIN (SELECT s.line FROM senders AS s ANTI JOIN pairs AS p ON p.s_line = s.line WHERE s.kind = 'stall') AS a
    ON a.line = r.line
ANTI JOIN receivers AS x ON x.ack_id = r.ack_id AND x.origin <> r.origin
WHERE r.kind = 'stall' AND r.by_sender AND NOT r.by_receiver AND r.ack_id <> 0
UNION ALL
SELECT r.source, r.line, r.origin, r.time_us, 0, r.receiver, r.sender
FROM records AS r ANTI JOIN pairs AS p ON p.ack_id = r.ack_id AND p.r_origin = r.origin
ANTI JOIN senders AS x ON x.ack_id = r.ack_id AND x.origin <> r.origin
WHERE r.kind = 'stall' AND NOT r.by_sender AND r.by_receiver AND r.ack_id <> 0
  AND (SELECT count(*) FROM witnesses WHERE of_holds = 1) > 0;

-- step: connections
-- Who has the other end of their connections, each half minute: the host that has recorded an ACK of the same connection, by
-- the addresses of both ends. Addresses alone do not show it: containers of many hosts have the same ones, and those of a
-- service lead on to others.
CREATE TEMP TABLE connections AS
SELECT DISTINCT e.origin AS origin, e.own AS own, e.far AS far, e.time_us // 30000000 AS half_minute, p.other AS other
FROM (
    SELECT line, origin, time_us, own, far
    FROM (
        SELECT line, origin, time_us, CASE WHEN by_sender THEN sender ELSE receiver END AS own,
               CASE WHEN by_sender THEN receiver ELSE sender END AS far
        FROM records WHERE by_sender <> by_receiver
    ) AS ends
    SEMI JOIN alone USING (origin, own, far)
) AS e
INNER JOIN (
    SELECT s_line AS line, r_origin AS other FROM pairs UNION ALL SELECT r_line, s_origin FROM pairs
) AS p ON p.line = e.line;

-- step: asked
-- Whom to ask for such a stall, and for when by that host's clock, give or take: who has the other end in its half minute,
-- the one before and the one after. Later, the same port may lead elsewhere.
CREATE TEMP TABLE asked AS
SELECT one.source AS source, one.line AS line, one.by_sender AS by_sender, one.other AS other,
       one.time_us - CASE WHEN one.by_sender = 1 THEN 1 ELSE -1 END * coalesce(k.ahead_us, 0) AS there_us,
       CASE WHEN k.ahead_us IS NULL THEN $window ELSE 1000000 END AS give_us
FROM (
    SELECT a.source AS source, a.line AS line, a.origin AS origin, a.by_sender AS by_sender, a.time_us AS time_us,
           min(c.other) AS other
    FROM alone AS a INNER JOIN connections AS c ON c.origin = a.origin AND c.own = a.own AND c.far = a.far
        AND c.half_minute BETWEEN a.time_us // 30000000 - 1 AND a.time_us // 30000000 + 1
    GROUP BY a.source, a.line, a.origin, a.by_sender, a.time_us HAVING min(c.other) = max(c.other)
) AS one
LEFT JOIN clocks AS k
    ON k.s_origin = CASE WHEN one.by_sender = 1 THEN one.origin ELSE one.other END
    AND k.r_origin = CASE WHEN one.by_sender = 1 THEN one.other ELSE one.origin END;

-- step: contradicted
-- Those of them of which the other host, traced at that time, shows no late ACK, or no hold.
CREATE TEMP TABLE contradicted AS
SELECT DISTINCT a.source AS source, a.line AS line
FROM asked AS a
INNER JOIN witnesses AS w ON w.origin = a.other AND w.from_us < a.there_us - a.give_us
    AND (a.by_sender = 1 OR w.of_holds = 1)
ASOF JOIN (SELECT * FROM reports WHERE complete = 1) AS r
    ON r.source = w.source AND r.origin = w.origin AND a.there_us - a.give_us <= r.to_us
ASOF JOIN (SELECT * FROM reports WHERE complete = 1) AS s
    ON s.source = w.source AND s.origin = w.origin AND a.there_us + a.give_us <= s.to_us
LEFT JOIN gaps AS g ON g.source = w.source AND g.origin = w.origin
    AND g.from_us <= a.there_us + a.give_us AND g.to_us >= a.there_us - a.give_us
WHERE g.source IS NULL AND r.from_us <= a.there_us - a.give_us AND s.from_us <= a.there_us + a.give_us;

-- step: refuted
-- Stalls that one host infers, and whose ACK the other host has too, by which there was none.
CREATE TEMP TABLE refuted AS
SELECT s_origin AS origin, ack_id, true AS by_sender FROM pairs WHERE stalled = 0
UNION ALL
SELECT r_origin, ack_id, false FROM pairs WHERE stalled = 0;

-- step: left_over
-- The stalls that one line alone reports. A stall without an ACK is known by its time and number, or else by its line.
CREATE TEMP TABLE left_over AS
SELECT r.line AS line, r.time_us AS time_us,
       CASE WHEN c.line IS NOT NULL OR k.ack_id IS NOT NULL THEN 'contradicted' WHEN r.alone = 1 THEN 'inferred'
            ELSE r.evidence END AS evidence,
       r.duration_us AS duration_us, r.excess_us AS excess_us, r.who AS who
FROM (
    SELECT unpaired.*,
           row_number() OVER (PARTITION BY origin, ack_id, by_sender, by_receiver,
                                           CASE WHEN ack_id = 0 THEN time_us END, CASE WHEN ack_id = 0 THEN number END,
                                           CASE WHEN ack_id = 0 AND (number < 0 OR origin = 0) THEN line END
                              ORDER BY source, line) AS place
    FROM (
        SELECT s.source AS source, s.line AS line, s.time_us AS time_us, s.origin AS origin, s.ack_id AS ack_id,
               s.number AS number, s.by_sender AS by_sender, s.by_receiver AS by_receiver, s.evidence AS evidence,
               s.duration_us AS duration_us, s.excess_us AS excess_us, s.who AS who,
               CASE WHEN s.ack_id <> 0 AND s.by_sender <> s.by_receiver THEN 1 ELSE 0 END AS alone
        FROM records AS s
        ANTI JOIN (SELECT ack_id, s_origin, r_origin FROM pairs WHERE stalled = 1) AS n
            ON n.ack_id = s.ack_id AND (n.s_origin = s.origin OR n.r_origin = s.origin) AND s.by_sender <> s.by_receiver
        WHERE s.kind = 'stall'
    ) AS unpaired
) AS r
LEFT JOIN contradicted AS c ON c.source = r.source AND c.line = r.line
LEFT JOIN refuted AS k ON k.origin = r.origin AND k.ack_id = r.ack_id AND k.by_sender = r.by_sender AND r.alone = 1
WHERE r.place = 1;

-- step: answers
-- The answer in the end: a line for each stall, with the line of its other end where there is one.
CREATE TEMP VIEW answers AS
SELECT s_line AS line, s_time_us AS time_us, 'seen' AS evidence, r_line AS other_line, r_time_us AS other_time_us,
       duration_us, excess_us, s_who AS who, r_who AS other_who
FROM pairs WHERE stalled = 1
UNION ALL
SELECT line, time_us, evidence, NULL, NULL, duration_us, excess_us, who, NULL FROM left_over;
