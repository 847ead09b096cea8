-- SPDX-License-Identifier: GPL-2.0
--
-- The join of stalls that two hosts have recorded, step by step: each `-- step:` makes one table of those before it.
-- engine.py fills the first one, `records`, with a row for each line that is read:
--
--   source, line   which file, and the number of the line, of all files together
--   kind           start, streaming, stall, hold, late_ack, report
--   time_us        microseconds since the epoch, by the host's own clock
--   origin         the number of a host and its boot: records of one origin have one clock; 0: not known
--   ack_id         by which both hosts know the ACK, as a number; 0: not known
--   number         counts what one start of the tracer has told; -1: not known
--   complete       of start and streaming: 1 where late ACKs are told, and no filter leaves one out; 2: holds too;
--                  of report: nothing was dropped, and nothing unseen
--   by_sender, by_receiver   which end this origin saw: 1 or 0
--   of_hold        of a hold: 1 where Nagle held the bytes until a pure ACK came
--   sender, receiver         the addresses, as this origin sees them
--   duration_us, rtt_us, pending_us
--   by_timer       the delayed-ACK timer sent the ACK: 1 or 0
--
-- $window is how far apart two hosts' clocks may be, in microseconds. DuckDB runs this. ClickHouse joins by the same rules
-- in dashboards/clickhouse/schema.sql, and tests/clickhouse compares the answers.

-- step: repeated
-- ACKs of which one end is told more than once: by several recordings, by a late ACK and a stall, or by chance. They are
-- few, and only they need to be put in order.
CREATE TEMP TABLE repeated AS
SELECT ack_id FROM records WHERE ack_id <> 0 AND by_sender + by_receiver = 1 GROUP BY ack_id
HAVING sum(by_sender) > 1 OR sum(by_receiver) > 1;

-- step: senders
-- What a sender's host has alone: a stall that it infers, or a Nagle hold that was none to it. One line of each ACK,
-- whatever the number of recordings that have it.
CREATE TEMP TABLE senders AS
SELECT s.source AS source, s.line AS line, s.kind AS kind, s.time_us AS time_us, s.origin AS origin, s.ack_id AS ack_id,
       s.sender AS sender, s.receiver AS receiver, s.duration_us AS duration_us, s.rtt_us AS rtt_us, 0 AS again
FROM records AS s LEFT JOIN repeated AS k ON k.ack_id = s.ack_id
WHERE s.by_sender = 1 AND s.by_receiver = 0 AND s.ack_id <> 0 AND (s.kind = 'stall' OR s.of_hold = 1)
  AND k.ack_id IS NULL
UNION ALL
SELECT source, line, kind, time_us, origin, ack_id, sender, receiver, duration_us, rtt_us, 1 FROM (
    SELECT s.*, row_number() OVER (PARTITION BY s.origin, s.ack_id ORDER BY s.kind DESC, s.source, s.line) AS place
    FROM records AS s INNER JOIN repeated AS k ON k.ack_id = s.ack_id
    WHERE s.by_sender = 1 AND s.by_receiver = 0 AND (s.kind = 'stall' OR s.of_hold = 1)
) AS one WHERE place = 1;

-- step: receivers
-- What a receiver's host has alone: a late ACK, or a stall that it infers. Of both for one ACK the late ACK tells the
-- time at which it went out; `inferred` tells that there was a stall besides.
CREATE TEMP TABLE receivers AS
SELECT r.source AS source, r.line AS line, r.kind AS kind, r.time_us AS time_us, r.origin AS origin, r.ack_id AS ack_id,
       r.pending_us AS pending_us, r.by_timer AS by_timer
FROM records AS r LEFT JOIN repeated AS k ON k.ack_id = r.ack_id
WHERE r.by_sender = 0 AND r.by_receiver = 1 AND r.ack_id <> 0 AND r.kind IN ('late_ack', 'stall') AND k.ack_id IS NULL
UNION ALL
SELECT source, line, kind, time_us, origin, ack_id, pending_us, by_timer FROM (
    SELECT r.*, row_number() OVER (PARTITION BY r.origin, r.ack_id ORDER BY r.kind, r.source, r.line) AS place
    FROM records AS r INNER JOIN repeated AS k ON k.ack_id = r.ack_id
    WHERE r.by_sender = 0 AND r.by_receiver = 1 AND r.kind IN ('late_ack', 'stall')
) AS one WHERE place = 1;

-- step: near_ones
-- Both ends of one ACK, as far as the clocks may be apart.
CREATE TEMP TABLE near_ones AS
SELECT s.ack_id AS ack_id, s.source AS s_source, s.line AS s_line, s.time_us AS s_time_us, s.origin AS s_origin,
       s.duration_us AS duration_us, s.rtt_us AS rtt_us, r.source AS r_source, r.line AS r_line, r.kind AS r_kind,
       r.time_us AS r_time_us, r.origin AS r_origin, r.pending_us AS pending_us, r.by_timer AS by_timer, s.again AS again,
       abs(s.time_us - r.time_us) AS apart_us
FROM senders AS s INNER JOIN receivers AS r ON s.ack_id = r.ack_id
WHERE s.origin <> r.origin AND abs(s.time_us - r.time_us) <= $window;

-- step: pairs
-- Of them the nearest in time, and each in one pair only.
CREATE TEMP TABLE pairs AS
SELECT ack_id, s_source, s_line, s_time_us, s_origin, duration_us, rtt_us, r_source, r_line, r_kind, r_time_us, r_origin,
       pending_us, by_timer
FROM near_ones WHERE again = 0
UNION ALL
SELECT ack_id, s_source, s_line, s_time_us, s_origin, duration_us, rtt_us, r_source, r_line, r_kind, r_time_us, r_origin,
       pending_us, by_timer
FROM (
    SELECT *, row_number() OVER (PARTITION BY r_line ORDER BY apart_us, s_line) AS r_place
    FROM (
        SELECT *, row_number() OVER (PARTITION BY s_line ORDER BY apart_us, r_line) AS s_place
        FROM near_ones WHERE again = 1
    ) AS nearest_of_s WHERE s_place = 1
) AS nearest_of_both WHERE r_place = 1;

-- step: clocks
-- How far the sender's clock is ahead of the receiver's: the ACK takes half a round trip. A late ACK tells when it went
-- out; without one, the receiver's stall ended about a round trip later.
CREATE TEMP TABLE clocks AS
SELECT s_origin, r_origin, count(*) AS acks,
       CAST(median(s_time_us - r_time_us + CASE WHEN r_kind = 'late_ack' THEN -rtt_us / 2 ELSE rtt_us / 2 END) AS BIGINT)
           AS ahead_us
FROM pairs GROUP BY s_origin, r_origin;

-- step: seen
-- The pairs that are stalls, by the rules of one host (bpf/judge.h, nt_nagle_evidence()): bytes that were written while
-- the ACK was on its way waited for that way, and an ACK that was sent for another reason than the timer is late only
-- from 30 ms on. The pending ACK ends half a round trip before the hold; in the hold it was pending for the rest at most.
CREATE TEMP TABLE seen AS
SELECT * FROM (
    SELECT *, CASE WHEN pending_us < duration_us - rtt_us THEN pending_us ELSE duration_us - rtt_us END AS in_hold_us
    FROM pairs
) AS measured
WHERE in_hold_us >= 1000 AND 2 * in_hold_us >= duration_us - rtt_us AND (by_timer = 1 OR pending_us >= 30000);

-- step: told
-- The lines of which a recording tells, in their order, and the number that each should have.
CREATE TEMP TABLE told AS
SELECT source, line, kind, origin, time_us, number, complete,
       lag(number) OVER (PARTITION BY source, origin ORDER BY line) AS number_before,
       lag(time_us) OVER (PARTITION BY source, origin ORDER BY line) AS time_before_us
FROM records WHERE number >= 0 AND origin <> 0;

-- step: gaps
-- Times of which a recording may lack something: its numbers do not go on. Two seconds more at either side, since
-- records that wait for a process's name come a little later than others.
CREATE TEMP TABLE gaps AS
SELECT source, origin, least(time_before_us, time_us) - 2000000 AS from_us,
       greatest(time_before_us, time_us) + 2000000 AS to_us
FROM told
WHERE number_before IS NOT NULL AND kind NOT IN ('start', 'streaming')
  AND number <> number_before + CASE WHEN kind = 'report' THEN 0 ELSE 1 END
UNION ALL
SELECT source, origin, time_before_us, time_us FROM told
WHERE number_before IS NOT NULL AND kind IN ('start', 'streaming');

-- step: witnesses
-- Recordings that would have a late ACK if there had been one; where of_holds is 1, a hold too. They tell of all, from
-- their first line to their last report, and that report says that nothing was dropped and no timer unseen.
CREATE TEMP TABLE witnesses AS
SELECT source, origin, min(time_us) AS from_us, max(CASE WHEN kind = 'report' THEN time_us ELSE 0 END) AS to_us,
       min(CASE WHEN kind IN ('start', 'streaming') THEN complete ELSE 2 END) - 1 AS of_holds
FROM told GROUP BY source, origin
HAVING sum(CASE WHEN kind IN ('start', 'streaming') THEN 1 ELSE 0 END) > 0
   AND sum(CASE WHEN kind = 'report' THEN 1 ELSE 0 END) > 0 AND min(complete) = 1;

-- step: hosts_of_addresses
-- An address without its port, if one origin only calls it its own. Addresses that every host has do not count.
CREATE TEMP TABLE hosts_of_addresses AS
SELECT address, min(origin) AS origin FROM (
    SELECT DISTINCT CASE WHEN receiver LIKE '[%' THEN regexp_replace(receiver, ':[0-9]+$', '')
                         ELSE substring(receiver, 1, position(':' IN receiver) - 1) END AS address, origin
    FROM records WHERE by_receiver = 1
    UNION ALL
    SELECT DISTINCT CASE WHEN sender LIKE '[%' THEN regexp_replace(sender, ':[0-9]+$', '')
                         ELSE substring(sender, 1, position(':' IN sender) - 1) END AS address, origin
    FROM records WHERE by_sender = 1
) AS own
WHERE address NOT LIKE '127.%' AND address NOT LIKE '[::1%' AND address NOT LIKE '[fe80:%' AND address NOT LIKE '169.254.%'
GROUP BY address HAVING count(DISTINCT origin) = 1;

-- step: alone
-- Stalls that a sender's host infers, and no other host has a part of.
CREATE TEMP TABLE alone AS
SELECT s.* FROM senders AS s LEFT JOIN pairs AS p ON p.s_line = s.line WHERE s.kind = 'stall' AND p.s_line IS NULL;

-- step: connections
-- Of which origin the other end of such a stall is: a pair of the same connection shows it.
CREATE TEMP TABLE connections AS
SELECT s.origin AS origin, s.sender AS sender, s.receiver AS receiver, min(p.r_origin) AS other
FROM pairs AS p
INNER JOIN senders AS s ON s.line = p.s_line
INNER JOIN (SELECT DISTINCT origin, sender, receiver FROM alone) AS a
    ON a.origin = s.origin AND a.sender = s.sender AND a.receiver = s.receiver
GROUP BY s.origin, s.sender, s.receiver HAVING count(DISTINCT p.r_origin) = 1;

-- step: contradicted
-- Those of them of which the receiver's host, traced at that time, shows no late ACK.
CREATE TEMP TABLE contradicted AS
SELECT DISTINCT one.source, one.line, one.other FROM (
    SELECT s.source AS source, s.line AS line, s.origin AS origin, s.time_us AS time_us,
           coalesce(c.other, h.origin) AS other
    FROM alone AS s
    LEFT JOIN connections AS c ON c.origin = s.origin AND c.sender = s.sender AND c.receiver = s.receiver
    LEFT JOIN hosts_of_addresses AS h ON h.address = regexp_replace(s.receiver, ':[0-9]+$', '')
    WHERE coalesce(c.other, h.origin) IS NOT NULL
) AS one
LEFT JOIN clocks AS k ON k.s_origin = one.origin AND k.r_origin = one.other
INNER JOIN witnesses AS w ON w.origin = one.other
LEFT JOIN gaps AS g ON g.source = w.source AND g.origin = w.origin
    AND one.time_us - coalesce(k.ahead_us, 0) BETWEEN g.from_us AND g.to_us
WHERE one.other <> one.origin AND g.source IS NULL
  AND one.time_us - coalesce(k.ahead_us, 0) - CASE WHEN k.ahead_us IS NULL THEN $window ELSE 1000000 END > w.from_us
  AND one.time_us - coalesce(k.ahead_us, 0) + CASE WHEN k.ahead_us IS NULL THEN $window ELSE 1000000 END < w.to_us;

-- step: lone_receivers
-- Stalls that a receiver's host infers, and no other host has a part of; only where a sender's host can deny them.
CREATE TEMP TABLE lone_receivers AS
SELECT r.time_us AS time_us, r.origin AS origin, r.ack_id AS ack_id, r.sender AS sender, r.receiver AS receiver
FROM records AS r LEFT JOIN pairs AS p ON p.ack_id = r.ack_id AND p.r_origin = r.origin
WHERE r.kind = 'stall' AND r.by_sender = 0 AND r.by_receiver = 1 AND r.ack_id <> 0 AND p.ack_id IS NULL
  AND (SELECT count(*) FROM witnesses WHERE of_holds = 1) > 0;

-- step: senders_of
-- Of which origin the sender's end of such a stall is: a pair of the same connection shows it.
CREATE TEMP TABLE senders_of AS
SELECT r.origin AS origin, r.sender AS sender, r.receiver AS receiver, min(p.s_origin) AS other
FROM pairs AS p
INNER JOIN records AS r ON r.line = p.r_line
INNER JOIN (SELECT DISTINCT origin, sender, receiver FROM lone_receivers) AS a
    ON a.origin = r.origin AND a.sender = r.sender AND a.receiver = r.receiver
GROUP BY r.origin, r.sender, r.receiver HAVING count(DISTINCT p.s_origin) = 1;

-- step: denied
-- Those of them of which the sender's host, traced at that time with all its holds, shows none.
CREATE TEMP TABLE denied AS
SELECT DISTINCT one.origin AS origin, one.ack_id AS ack_id, one.other AS other FROM (
    SELECT r.origin AS origin, r.ack_id AS ack_id, r.time_us AS time_us, coalesce(c.other, h.origin) AS other
    FROM lone_receivers AS r
    LEFT JOIN senders_of AS c ON c.origin = r.origin AND c.sender = r.sender AND c.receiver = r.receiver
    LEFT JOIN hosts_of_addresses AS h ON h.address = regexp_replace(r.sender, ':[0-9]+$', '')
    WHERE coalesce(c.other, h.origin) IS NOT NULL
) AS one
LEFT JOIN clocks AS k ON k.s_origin = one.other AND k.r_origin = one.origin
INNER JOIN witnesses AS w ON w.origin = one.other AND w.of_holds = 1
LEFT JOIN gaps AS g ON g.source = w.source AND g.origin = w.origin
    AND one.time_us + coalesce(k.ahead_us, 0) BETWEEN g.from_us AND g.to_us
WHERE one.other <> one.origin AND g.source IS NULL
  AND one.time_us + coalesce(k.ahead_us, 0) - CASE WHEN k.ahead_us IS NULL THEN $window ELSE 1000000 END > w.from_us
  AND one.time_us + coalesce(k.ahead_us, 0) + CASE WHEN k.ahead_us IS NULL THEN $window ELSE 1000000 END < w.to_us;

-- step: refuted
-- Stalls that one host infers, and whose ACK the other host has too, by which there was none; or has not at all.
CREATE TEMP TABLE refuted AS
SELECT p.s_origin AS origin, p.ack_id AS ack_id, 1 AS by_sender, p.r_origin AS other
FROM pairs AS p LEFT JOIN seen AS n ON n.s_line = p.s_line WHERE n.s_line IS NULL
UNION ALL
SELECT p.r_origin, p.ack_id, 0, p.s_origin
FROM pairs AS p LEFT JOIN seen AS n ON n.s_line = p.s_line WHERE n.s_line IS NULL
UNION ALL
SELECT origin, ack_id, 0, other FROM denied;

-- step: answers
-- What is told in the end: a line for each stall, with the line of its other end where there is one.
CREATE TEMP TABLE answers AS
SELECT s_source AS source, s_line AS line, s_time_us AS time_us, 'seen' AS evidence,
       r_source AS other_source, r_line AS other_line, 0 AS other
FROM seen
UNION ALL
SELECT r.source, r.line, r.time_us,
       CASE WHEN c.line IS NOT NULL OR k.ack_id IS NOT NULL THEN 'contradicted' WHEN r.alone = 1 THEN 'inferred'
            ELSE 'as it is' END,
       NULL, NULL, coalesce(c.other, k.other, 0)
FROM (
    SELECT left_over.*,
           row_number() OVER (PARTITION BY origin, ack_id, by_sender, by_receiver,
                                           CASE WHEN ack_id = 0 THEN source ELSE 0 END,
                                           CASE WHEN ack_id = 0 THEN line ELSE 0 END
                              ORDER BY source, line) AS place
    FROM (
        SELECT s.source AS source, s.line AS line, s.time_us AS time_us, s.origin AS origin, s.ack_id AS ack_id,
               s.by_sender AS by_sender, s.by_receiver AS by_receiver,
               CASE WHEN s.ack_id <> 0 AND s.by_sender + s.by_receiver = 1 THEN 1 ELSE 0 END AS alone
        FROM records AS s
        LEFT JOIN seen AS n ON n.ack_id = s.ack_id AND (n.s_origin = s.origin OR n.r_origin = s.origin)
            AND s.by_sender + s.by_receiver = 1
        WHERE s.kind = 'stall' AND n.ack_id IS NULL
    ) AS left_over
) AS r
LEFT JOIN contradicted AS c ON c.source = r.source AND c.line = r.line
LEFT JOIN refuted AS k ON k.origin = r.origin AND k.ack_id = r.ack_id AND k.by_sender = r.by_sender AND r.alone = 1
WHERE r.place = 1;
