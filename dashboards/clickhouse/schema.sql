-- SPDX-License-Identifier: GPL-2.0
--
-- The stalls of a fleet in ClickHouse (25.3 or newer). Lines of JSON go into `incoming`. `records` and `runs` keep what
-- they say. `joined` has both ends of each stall, by the rules of nagletrace-join (join.sql). Ask the view `stalls`.
-- To run this file a second time changes nothing.
--
-- You may want to change four numbers:
--   30 days     how long records and stalls are kept: the TTL of the tables, and `read`
--   3 days      how late a record may come and still be joined: `due`
--   5 minutes   how soon after it came a record is joined: `meet` and `dismiss`
--   2 s         how far the clocks of two hosts may be apart: `meetings`, `dismissals`

CREATE DATABASE IF NOT EXISTS nagletrace;

-- ---- what comes ----

-- A line each, as `nagletrace -o json` or the daemon's stream has it. It is not stored: `read` passes it on.
CREATE TABLE IF NOT EXISTS nagletrace.incoming (line String) ENGINE = Null;

-- What a line says. A key that is missing, or has another type, is 0 or ''; keys that do not stand here are left out.
CREATE TABLE IF NOT EXISTS nagletrace.understood (
    time DateTime64(6, 'UTC'),
    said Tuple(
        type String, time String, host String, boot_id String, number Int64, ack_id String, cause String,
        reason String, side String, evidence String, pattern String, duration_us Int64, excess_us Int64,
        min_rtt_us Int64, family UInt8, contradicted Bool, ack_after_hold_us Nullable(Int64),
        sender Tuple(address String, netns UInt64, pid UInt32, tid UInt32, comm String, cgroup String,
            container_id String, pod_uid String, options Tuple(nodelay Bool, cork Bool, pingpong Bool, quickack Bool),
            hold Tuple(reason String, release String, bytes Int64, in_flight_bytes Int64, writes Int64, write_bytes Int64, sent_writes Int64, mss Int64),
            stack String),
        receiver Tuple(address String, netns UInt64, pid UInt32, comm String, cgroup String, container_id String,
            pod_uid String, options Tuple(nodelay Bool, cork Bool, pingpong Bool, quickack Bool),
            pending_ack Tuple(duration_us Int64, reason String, release String, limit_us Int64, bytes Int64,
                              locked Bool)),
        version String, kernel String, ack_key String, late_acks String, holds String, span_us Int64,
        unseen Nullable(Int64),
        dropped Tuple(ring_full Nullable(UInt64), ring_share UInt64, hold_map_full UInt64, ack_map_full UInt64,
            function_return UInt64, late_ack_limit UInt64),
        detached_hooks Array(String), standby Tuple(state String), key_changed Bool)
) ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS nagletrace.read TO nagletrace.understood AS
SELECT said, if(its_time BETWEEN now64() - INTERVAL 30 DAY AND now64() + INTERVAL 1 DAY, its_time,
                toDateTime64(0, 6, 'UTC')) AS time -- what cannot be right becomes 1970: each wrong day is a partition
FROM (
    SELECT parseDateTime64BestEffortOrZero(said.time, 6, 'UTC') AS its_time,
           JSONExtract(line, 'Tuple(
           type String, time String, host String, boot_id String, number Int64, ack_id String, cause String,
           reason String, side String, evidence String, pattern String, duration_us Int64, excess_us Int64,
           min_rtt_us Int64, family UInt8, contradicted Bool, ack_after_hold_us Nullable(Int64),
           sender Tuple(address String, netns UInt64, pid UInt32, tid UInt32, comm String, cgroup String,
               container_id String, pod_uid String, options Tuple(nodelay Bool, cork Bool, pingpong Bool, quickack Bool),
               hold Tuple(reason String, release String, bytes Int64, in_flight_bytes Int64, writes Int64, write_bytes Int64, sent_writes Int64, mss Int64),
               stack String),
           receiver Tuple(address String, netns UInt64, pid UInt32, comm String, cgroup String, container_id String,
               pod_uid String, options Tuple(nodelay Bool, cork Bool, pingpong Bool, quickack Bool),
               pending_ack Tuple(duration_us Int64, reason String, release String, limit_us Int64, bytes Int64,
                              locked Bool)),
           version String, kernel String, ack_key String, late_acks String, holds String, span_us Int64,
           unseen Nullable(Int64),
           dropped Tuple(ring_full Nullable(UInt64), ring_share UInt64, hold_map_full UInt64, ack_map_full UInt64,
               function_return UInt64, late_ack_limit UInt64),
           detached_hooks Array(String), standby Tuple(state String), key_changed Bool)') AS said
    FROM nagletrace.incoming
) AS lines;

-- Stalls, holds and late ACKs. Those with one ack_id lie together. A line that comes twice stays once.
CREATE TABLE IF NOT EXISTS nagletrace.records (
    hour DateTime('UTC') CODEC(Delta, ZSTD),
    ack_id UInt64 CODEC(Delta, ZSTD),
    host LowCardinality(String),
    boot_id LowCardinality(String),
    kind LowCardinality(String),
    time DateTime64(6, 'UTC') CODEC(T64, ZSTD),
    number Int64 CODEC(T64, ZSTD),
    cause LowCardinality(String),
    reason LowCardinality(String),
    side LowCardinality(String),
    evidence LowCardinality(String),
    pattern LowCardinality(String),
    duration_us Int64 CODEC(T64, ZSTD),
    excess_us Int64 CODEC(T64, ZSTD),
    min_rtt_us Int64 CODEC(T64, ZSTD),
    family UInt8,
    contradicted Bool,
    ack_after_hold_us Nullable(Int64),
    sender Tuple(
        address String, netns UInt64, pid UInt32, tid UInt32, comm LowCardinality(String),
        cgroup LowCardinality(String), container_id LowCardinality(String), pod_uid LowCardinality(String),
        options Tuple(nodelay Bool, cork Bool, pingpong Bool, quickack Bool),
        hold Tuple(reason LowCardinality(String), release LowCardinality(String), bytes Int64, in_flight_bytes Int64,
            writes Int64, write_bytes Int64, sent_writes Int64, mss Int64),
        stack String) CODEC(ZSTD),
    receiver Tuple(
        address String, netns UInt64, pid UInt32, comm LowCardinality(String),
        cgroup LowCardinality(String), container_id LowCardinality(String), pod_uid LowCardinality(String),
        options Tuple(nodelay Bool, cork Bool, pingpong Bool, quickack Bool),
        pending_ack Tuple(duration_us Int64, reason LowCardinality(String), release LowCardinality(String),
            limit_us Int64, bytes Int64, locked Bool)) CODEC(ZSTD)
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(hour)
ORDER BY (hour, ack_id, host, boot_id, kind, side, time, number)
TTL hour + INTERVAL 30 DAY
SETTINGS ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS nagletrace.keep_records TO nagletrace.records AS
SELECT toStartOfHour(time) AS hour,
       if(match(said.ack_id, '^[0-9a-f]{16}$'), reinterpretAsUInt64(reverse(unhex(said.ack_id))), 0) AS ack_id,
       said.host AS host, said.boot_id AS boot_id, said.type AS kind, time, said.number AS number, said.cause AS cause,
       said.reason AS reason, said.side AS side, said.evidence AS evidence, said.pattern AS pattern,
       said.duration_us AS duration_us, said.excess_us AS excess_us, said.min_rtt_us AS min_rtt_us,
       said.family AS family, said.contradicted AS contradicted, said.ack_after_hold_us AS ack_after_hold_us, said.sender AS sender,
       said.receiver AS receiver
FROM nagletrace.understood
WHERE said.type IN ('stall', 'hold', 'late_ack') AND said.host != '' AND time != 0;

-- When a tracer began, and its reports, which are the totals of a daemon's stream too: from these a witness follows.
-- `complete`: it reports all late ACKs, by its start; by a report, in its time it dropped nothing, --max-late-acks left
-- out nothing, no timer ran unseen, no hook was detached and the key was one. `of_holds`: it reports all holds too, by
-- its start.
CREATE TABLE IF NOT EXISTS nagletrace.runs (
    host LowCardinality(String),
    boot_id LowCardinality(String),
    time DateTime64(6, 'UTC') CODEC(Delta, ZSTD),
    kind LowCardinality(String),
    number Int64 CODEC(T64, ZSTD),
    complete Bool,
    of_holds Bool,
    span_us Int64 CODEC(T64, ZSTD),
    ack_key LowCardinality(String),
    version LowCardinality(String),
    kernel LowCardinality(String)
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(time)
ORDER BY (host, boot_id, time, kind, number)
TTL toDateTime(time) + INTERVAL 30 DAY
SETTINGS ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS nagletrace.keep_runs TO nagletrace.runs AS
SELECT said.host AS host, said.boot_id AS boot_id, time, if(said.type = 'totals', 'report', said.type) AS kind,
       said.number AS number,
       if(kind = 'report',
          empty(said.detached_hooks) AND said.standby.state = '' AND NOT said.key_changed AND ifNull(said.unseen, 1) = 0
              AND ifNull(said.dropped.ring_full, 1) + said.dropped.ring_share + said.dropped.hold_map_full
                  + said.dropped.ack_map_full + said.dropped.function_return + said.dropped.late_ack_limit = 0,
          said.late_acks = 'all') AS complete,
       kind != 'report' AND said.late_acks = 'all' AND said.holds IN ('all', 'late') AS of_holds,
       said.span_us AS span_us, said.ack_key AS ack_key, said.version AS version, said.kernel AS kernel
FROM nagletrace.understood
WHERE said.type IN ('start', 'streaming', 'report', 'totals') AND said.host != '' AND time != 0;

-- Lines of which nothing is kept: no JSON, no host, or a time that cannot be right. Events and others are not meant.
CREATE TABLE IF NOT EXISTS nagletrace.refused (hour DateTime('UTC'), host LowCardinality(String), lines UInt64)
ENGINE = SummingMergeTree ORDER BY (hour, host) TTL hour + INTERVAL 30 DAY;

CREATE MATERIALIZED VIEW IF NOT EXISTS nagletrace.count_refused TO nagletrace.refused AS
SELECT toStartOfHour(now('UTC')) AS hour, substring(said.host, 1, 64) AS host, count() AS lines
FROM nagletrace.understood
WHERE NOT match(said.type, '^[a-z_]+$')
   OR (said.host = '' OR time = 0) AND said.type IN ('stall', 'hold', 'late_ack', 'start', 'streaming', 'report',
                                                           'totals')
GROUP BY hour, host;

-- ---- which hours have to be joined ----

CREATE TABLE IF NOT EXISTS nagletrace.arrivals (
    hour DateTime('UTC'), at SimpleAggregateFunction(max, DateTime64(3, 'UTC')))
ENGINE = AggregatingMergeTree ORDER BY hour TTL hour + INTERVAL 30 DAY;

-- A record within 2 s of another hour may have its other end there.
CREATE MATERIALIZED VIEW IF NOT EXISTS nagletrace.note_records TO nagletrace.arrivals AS
SELECT arrayJoin([toStartOfHour(time - INTERVAL 2 SECOND), toStartOfHour(time + INTERVAL 2 SECOND)]) AS hour,
       max(now64(3, 'UTC')) AS at
FROM nagletrace.records GROUP BY hour;

-- A report speaks of the time before it, and a start of the time after it: at most a day of it is judged anew. After a
-- start these are the hours for which something came before it.
CREATE MATERIALIZED VIEW IF NOT EXISTS nagletrace.note_runs TO nagletrace.arrivals AS
SELECT arrayJoin(if(kind = 'report',
                    arrayMap(i -> toStartOfHour(time) - INTERVAL i HOUR,
                             range(toUInt8(1 + dateDiff('hour', time - toIntervalMicrosecond(
                                 2000000 + least(greatest(span_us, 0), 86400000000)), time)))),
                    arrayFilter(h -> h IN (SELECT hour FROM nagletrace.arrivals),
                                arrayMap(i -> toStartOfHour(time) + INTERVAL i HOUR, range(25))))) AS hour,
       max(now64(3, 'UTC')) AS at
FROM nagletrace.runs GROUP BY hour;

-- ---- the join ----

-- A row for each stall that a host has reported, and for each pair; verdict says what it is:
--   seen, inferred, contradicted   what `stalls` shows
--   told       its other end's row tells of this stall
--   no stall   a pair that is none by the rules, or a hold without another end
--   met, judged   marks of an hour: `meet` and `dismiss` have done it
-- `version` is when it was joined; the last one counts.
CREATE TABLE IF NOT EXISTS nagletrace.joined (
    hour DateTime('UTC') CODEC(Delta, ZSTD),
    ack_id UInt64 CODEC(Delta, ZSTD),
    host LowCardinality(String),
    boot_id LowCardinality(String),
    side LowCardinality(String),
    place UInt64 CODEC(ZSTD),
    version DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    verdict LowCardinality(String),
    time DateTime64(6, 'UTC') CODEC(T64, ZSTD),
    cause LowCardinality(String),
    reason LowCardinality(String),
    pattern LowCardinality(String),
    duration_us Int64 CODEC(T64, ZSTD),
    excess_us Int64 CODEC(T64, ZSTD),
    min_rtt_us Int64 CODEC(T64, ZSTD),
    family UInt8,
    ack_after_hold_us Nullable(Int64),
    sender_host LowCardinality(String),
    receiver_host LowCardinality(String),
    other_boot_id LowCardinality(String),
    -- the other end's address as this host knows it, and how far its clock is ahead of the other host's
    far_address String CODEC(ZSTD),
    ahead_us Nullable(Float64) CODEC(ZSTD),
    sender Tuple(
        address String, netns UInt64, pid UInt32, tid UInt32, comm LowCardinality(String),
        cgroup LowCardinality(String), container_id LowCardinality(String), pod_uid LowCardinality(String),
        options Tuple(nodelay Bool, cork Bool, pingpong Bool, quickack Bool),
        hold Tuple(reason LowCardinality(String), release LowCardinality(String), bytes Int64, in_flight_bytes Int64,
            writes Int64, write_bytes Int64, sent_writes Int64, mss Int64),
        stack String) CODEC(ZSTD),
    receiver Tuple(
        address String, netns UInt64, pid UInt32, comm LowCardinality(String),
        cgroup LowCardinality(String), container_id LowCardinality(String), pod_uid LowCardinality(String),
        options Tuple(nodelay Bool, cork Bool, pingpong Bool, quickack Bool),
        pending_ack Tuple(duration_us Int64, reason LowCardinality(String), release LowCardinality(String),
            limit_us Int64, bytes Int64, locked Bool)) CODEC(ZSTD)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(hour)
ORDER BY (hour, ack_id, host, boot_id, side, place)
TTL hour + INTERVAL 30 DAY
SETTINGS ttl_only_drop_parts = 1;

-- Of the last 3 days the hours with records that came since they were joined, six at a time, those first whose turn was
-- longest ago. An insert may take a minute until its rows show.
CREATE VIEW IF NOT EXISTS nagletrace.due AS
SELECT hour FROM (
    SELECT hour, at, toDateTime64(0, 3, 'UTC') AS joined_at FROM nagletrace.arrivals
    UNION ALL
    SELECT hour, toDateTime64(0, 3, 'UTC'), version FROM nagletrace.joined WHERE ack_id = 0 AND verdict = 'met'
) AS both
WHERE hour > now('UTC') - INTERVAL 3 DAY
GROUP BY hour HAVING max(at) > max(joined_at) - INTERVAL 1 MINUTE
ORDER BY max(joined_at), hour LIMIT 6;

-- What one end has of an ACK: a stall, a late ACK, or a hold for whose bytes somebody may have waited.
CREATE VIEW IF NOT EXISTS nagletrace.parts AS
SELECT * FROM nagletrace.records
WHERE ack_id != 0 AND (sender.netns != 0) != (receiver.netns != 0)
  AND (kind = 'stall' OR kind = 'late_ack' AND receiver.netns != 0
       OR kind = 'hold' AND sender.netns != 0 AND NOT contradicted AND sender.hold.release = 'ack'
          AND sender.hold.reason IN ('nagle', 'msg_more', 'cwnd', 'sndbuf', 'linger'));

-- Both ends of one ACK, or the one end that there is: `s` has no host where no sender's host reported it, `r` likewise.
-- Of two records that a host has of one ACK, a sender's stall counts more than its hold, and a receiver's late ACK, which
-- has the time at which it went out, more than its stall: that is `stall` then. The nearest in time meet, each once.
-- At most 64 of a side are taken: who invents more under one ack_id does not slow the join down.
CREATE VIEW IF NOT EXISTS nagletrace.meetings AS
WITH 2000000 AS window_us
SELECT ack_id, ss[if(place.1 = 0, length(ss) + 1, place.1)] AS s, rs[if(place.2 = 0, length(rs) + 1, place.2)] AS r,
       arrayFirst(e -> e.kind = 'stall' AND e.origin = r.origin, rs) AS stall
FROM (
    SELECT ack_id, ss, rs, ss.us AS s_us, rs.us AS r_us, ss.origin AS s_origin, rs.origin AS r_origin,
           -- of each host the first
           arrayFilter(i -> indexOf(s_origin, s_origin[i]) = i, arrayEnumerate(s_origin)) AS senders,
           arrayFilter(j -> indexOf(r_origin, r_origin[j]) = j, arrayEnumerate(r_origin)) AS receivers,
           -- for each sender the nearest receiver, 0: none
           arrayMap(i -> arraySort(j -> (abs(s_us[i] - r_us[j]), j),
                                   arrayFilter(j -> r_origin[j] != s_origin[i] AND abs(s_us[i] - r_us[j]) <= window_us,
                                               receivers))[1], senders) AS nearest,
           arrayMap((i, j) -> if(arrayExists((k, l) -> l = j AND (abs(s_us[k] - r_us[j]), k) < (abs(s_us[i] - r_us[j]), i),
                                             senders, nearest), 0, j), senders, nearest) AS met
    FROM (
        SELECT ack_id, arraySort(e -> (e.rank, e.us, e.number), groupArrayIf(64)(e, by_sender)) AS ss,
               arraySort(e -> (e.rank, e.us, e.number), groupArrayIf(64)(e, NOT by_sender)) AS rs
        FROM (
            SELECT ack_id, sender.netns != 0 AS by_sender,
                   tuple(sipHash64(host, boot_id) AS origin, toUnixTimestamp64Micro(time) AS us,
                         kind = if(by_sender, 'hold', 'stall') AS rank, hour, time, host, boot_id, kind, number, cause,
                         reason, pattern, duration_us, excess_us, min_rtt_us, family, ack_after_hold_us, sender,
                         receiver) AS e
            FROM nagletrace.parts
            WHERE hour IN (SELECT arrayJoin([hour - INTERVAL 1 HOUR, hour, hour + INTERVAL 1 HOUR]) FROM nagletrace.due)
        ) AS ends
        GROUP BY ack_id
    ) AS by_ack
) AS met_by_ack
ARRAY JOIN arrayConcat(arrayZip(senders, met),
                       arrayMap(j -> (0, j), arrayFilter(j -> NOT has(met, j), receivers))) AS place
SETTINGS enable_named_columns_in_function_tuple = 1;

-- What `meet` writes: first all rows of an hour, then its mark, so that a join that was cut short is done again.
CREATE VIEW IF NOT EXISTS nagletrace.joining AS
WITH
    -- by the rules of one host (bpf/judge.h, nt_late_evidence())
    greatest(s.excess_us, s.duration_us - s.min_rtt_us) AS hold_excess_us, -- an older tracer has not said it of a hold
    r.receiver.pending_ack.duration_us AS pending_us,
    least(pending_us, hold_excess_us) AS in_hold_us,
    s.origin != 0 AND r.origin != 0 AS paired,
    r.receiver.pending_ack.release = 'timer' AS by_timer,
    paired AND in_hold_us >= 1000 AND (by_timer OR pending_us >= 30000)
        AND (2 * in_hold_us >= hold_excess_us
             OR r.receiver.pending_ack.locked AND in_hold_us >= 30000) AS seen,
    if(side = 'sender', s, stall) AS e
SELECT e.hour AS hour, ack_id, e.host AS host, e.boot_id AS boot_id, side, 0 AS place,
       multiIf(seen, if(side = 'sender', 'seen', 'told'), e.kind != 'stall', 'no stall',
               paired, 'contradicted', 'inferred') AS verdict,
       e.time AS time,
       multiIf(verdict IN ('contradicted', 'no stall'), '', e.kind = 'stall', e.cause,
               e.sender.hold.reason = 'nagle', 'nagle_delayed_ack', 'delayed_ack') AS cause,
       multiIf(cause != 'delayed_ack', '', e.kind = 'stall', e.reason, e.sender.hold.reason) AS reason,
       multiIf(verdict != 'seen' OR e.kind = 'stall', e.pattern, e.sender.hold.reason = 'sndbuf', 'full_buffer',
               e.sender.hold.reason = 'cwnd', 'small_cwnd', e.sender.hold.reason = 'linger', 'lingering_close',
               e.sender.hold.in_flight_bytes >= e.sender.hold.mss
                   OR (e.sender.hold.writes = 1 AND e.sender.hold.write_bytes > e.sender.hold.bytes), 'reply_tail',
               e.sender.hold.writes > 1, 'several_writes', 'write_write_read') AS pattern,
       e.duration_us AS duration_us,
       multiIf(verdict = 'seen', hold_excess_us, verdict IN ('contradicted', 'no stall'), 0, e.excess_us) AS excess_us,
       e.min_rtt_us AS min_rtt_us, e.family AS family,
       multiIf(verdict = 'seen' AND NOT r.receiver.pending_ack.locked,
               e.duration_us - intDiv(e.min_rtt_us, 2) - pending_us,
               verdict IN ('seen', 'contradicted'), NULL, e.ack_after_hold_us) AS ack_after_hold_us,
       s.host AS sender_host, r.host AS receiver_host,
       if(side = 'sender', r.boot_id, s.boot_id) AS other_boot_id,
       if(side = 'sender', e.receiver.address, e.sender.address) AS far_address,
       -- a receiver's stall ends about a round trip after its ACK went out
       if(paired AND side = 'sender',
          s.us - r.us + if(r.kind = 'late_ack', -0.5, 0.5) * s.min_rtt_us, NULL) AS ahead_us,
       e.sender AS sender, if(verdict = 'seen', r.receiver, e.receiver) AS receiver
FROM nagletrace.meetings
ARRAY JOIN arrayFilter(one -> if(one = 'sender', s.origin, toUInt64(stall.host != '')) != 0,
                       ['sender', 'receiver']) AS side
WHERE hour IN (SELECT hour FROM nagletrace.due)
UNION ALL
-- stalls of which one host has both ends, or whose ACK has no name, are as they are
SELECT hour, ack_id, host, boot_id, side,
       if(ack_id = 0, sipHash64(time, number), 1 + (sender.netns != 0)) AS place,
       evidence, time, cause, reason, pattern, duration_us, excess_us, min_rtt_us, family, ack_after_hold_us,
       if(sender.netns != 0, host, '') AS sender_host, if(receiver.netns != 0, host, '') AS receiver_host, '',
       if(side = 'sender', receiver.address, sender.address), NULL,
       sender, receiver
FROM nagletrace.records
WHERE hour IN (SELECT hour FROM nagletrace.due) AND kind = 'stall'
  AND (ack_id = 0 OR (sender.netns != 0) = (receiver.netns != 0))
UNION ALL
SELECT hour, 0, '', '', 'met', 0, 'met', hour, '', '', '', 0, 0, 0, 0, NULL, '', '', '', '', NULL, sender, receiver
FROM nagletrace.due
CROSS JOIN (SELECT any(sender) AS sender, any(receiver) AS receiver FROM nagletrace.records WHERE 0) AS nothing
SETTINGS enable_named_columns_in_function_tuple = 1;


CREATE MATERIALIZED VIEW IF NOT EXISTS nagletrace.meet REFRESH EVERY 5 MINUTE APPEND TO nagletrace.joined AS
SELECT *, now64(3, 'UTC') AS version FROM nagletrace.joining
ORDER BY verdict = 'met', hour, ack_id
SETTINGS max_bytes_before_external_group_by = 2000000000, max_bytes_before_external_sort = 2000000000;

-- ---- what the other host contradicts ----

-- Hours that were joined, and not judged since, with the version of their rows.
CREATE VIEW IF NOT EXISTS nagletrace.judging AS
SELECT hour, maxIf(version, verdict = 'met') AS met_at
FROM nagletrace.joined WHERE ack_id = 0 AND verdict IN ('met', 'judged') AND hour > now('UTC') - INTERVAL 3 DAY
GROUP BY hour HAVING met_at > maxIf(version, verdict = 'judged');

-- From when to when a tracer reports all late ACKs of its host, and of_holds: of all holds: from its start to its last
-- report, but for what `gaps` has.
CREATE VIEW IF NOT EXISTS nagletrace.witnesses AS
SELECT host, boot_id, began AS from_time, maxIf(time, kind = 'report') AS to_time,
       minIf(of_holds, kind != 'report') AS of_holds
FROM (
    SELECT *, maxIf(time, kind != 'report') OVER (
        PARTITION BY host, boot_id ORDER BY time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS began
    FROM nagletrace.runs
    WHERE kind != 'report' OR time > (SELECT min(hour) - INTERVAL 1 HOUR FROM nagletrace.judging)
) AS of_runs
WHERE began != 0
GROUP BY host, boot_id, began
HAVING min(complete OR kind = 'report') AND countIf(kind = 'report') > 0;

-- Stalls that a sender's host infers, while their receiver's host, traced at that time, has no late ACK; and those that
-- a receiver's host infers, while their sender's host, traced at that time with all its holds, has none.
CREATE VIEW IF NOT EXISTS nagletrace.dismissals AS
WITH
    around AS (SELECT arrayJoin([hour - INTERVAL 1 HOUR, hour, hour + INTERVAL 1 HOUR]) FROM nagletrace.judging),
    -- both addresses as this host knows them
    alone AS (
        SELECT hour, ack_id, host, boot_id, side, time,
               if(side = 'sender', j.sender.address, j.receiver.address) AS own, far_address AS far
        FROM nagletrace.joined AS j FINAL
        WHERE hour IN (SELECT hour FROM nagletrace.judging)
          AND verdict = 'inferred' AND side IN ('sender', 'receiver') AND place = 0 AND ack_id != 0
          AND (side = 'sender' OR (SELECT count() FROM nagletrace.witnesses WHERE of_holds) > 0)
    ),
    pairs AS (
        SELECT ack_id, host, boot_id, time, sender.address AS own, far_address AS far, receiver_host AS other,
               other_boot_id, ahead_us
        FROM nagletrace.joined FINAL
        WHERE hour IN around AND ahead_us IS NOT NULL
    ),
    -- what hosts reported, as receivers, of the connections of such stalls
    of_receivers AS (
        SELECT ack_id, host, boot_id, time, r.receiver.address AS own, r.sender.address AS far
        FROM nagletrace.records AS r
        WHERE hour IN around AND ack_id != 0 AND r.sender.netns = 0 AND r.receiver.netns != 0
          AND (host, boot_id, own, far) IN (SELECT host, boot_id, own, far FROM alone)
    ),
    -- Who has the other end of a connection, each half minute: the host that has recorded an ACK of it. Addresses alone do
    -- not show it: containers of many hosts have the same ones, and those of a service lead on to others.
    connections AS (
        SELECT DISTINCT host, boot_id, own, far, intDiv(toUnixTimestamp(time), 30) AS half_minute, other, other_boot_id
        FROM (
            SELECT host, boot_id, own, far, time, other, other_boot_id FROM pairs
            WHERE (host, boot_id, own, far) IN (SELECT host, boot_id, own, far FROM alone)
            UNION ALL
            SELECT r.host, r.boot_id, r.own, r.far, r.time, p.host, p.boot_id
            FROM pairs AS p
            INNER JOIN of_receivers AS r ON r.ack_id = p.ack_id AND r.host = p.other AND r.boot_id = p.other_boot_id
        ) AS ends
    ),
    clocks AS (
        SELECT host, boot_id, other, other_boot_id, quantileExactInclusive(0.5)(ahead_us) AS ahead_us
        FROM pairs GROUP BY host, boot_id, other, other_boot_id
    ),
    -- in the half minute of the stall, the one before and the one after: later, the same port may lead elsewhere
    asked AS (
        SELECT alone.hour AS hour, alone.ack_id AS ack_id, alone.host AS host, alone.boot_id AS boot_id,
               alone.side AS side, alone.time AS time, any(c.other) AS other, any(c.other_boot_id) AS other_boot_id
        FROM alone
        INNER JOIN connections AS c
            ON c.host = alone.host AND c.boot_id = alone.boot_id AND c.own = alone.own AND c.far = alone.far
        WHERE abs(toInt64(c.half_minute) - toInt64(intDiv(toUnixTimestamp(alone.time), 30))) <= 1
        GROUP BY hour, ack_id, host, boot_id, side, time HAVING uniqExact(c.other, c.other_boot_id) = 1
    ),
    -- when it was by the other host's clock, give or take
    dated AS (
        SELECT asked.hour AS hour, asked.ack_id AS ack_id, asked.host AS host, asked.boot_id AS boot_id,
               asked.side AS side, asked.other AS other, asked.other_boot_id AS other_boot_id,
               asked.time - toIntervalMicrosecond(if(asked.side = 'sender', 1, -1) * ifNull(k.ahead_us, 0)) AS there_at,
               if(k.other != '', 1000000, 2000000) AS give_us
        FROM asked
        LEFT JOIN clocks AS k
            ON k.host = if(asked.side = 'sender', asked.host, asked.other)
            AND k.boot_id = if(asked.side = 'sender', asked.boot_id, asked.other_boot_id)
            AND k.other = if(asked.side = 'sender', asked.other, asked.host)
            AND k.other_boot_id = if(asked.side = 'sender', asked.other_boot_id, asked.boot_id)
    ),
    -- the other end of such a stall, within some hours: somebody may have set that host's clock
    there AS (
        SELECT ack_id, host AS other, boot_id AS other_boot_id, if(sender.netns = 0, 'sender', 'receiver') AS side
        FROM nagletrace.parts
        WHERE hour IN around AND ack_id IN (SELECT ack_id FROM alone)
    ),
    -- what the witnesses reported, by number, in each run
    told AS (
        SELECT host, boot_id, kind, time, number,
               maxIf(time, kind IN ('start', 'streaming')) OVER (
                   PARTITION BY host, boot_id ORDER BY time, kind IN ('start', 'streaming') DESC
                   ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS began
        FROM (
            SELECT DISTINCT host, boot_id, kind, time, number FROM nagletrace.records
            WHERE hour IN around AND number > 0
              AND (host, boot_id) IN (SELECT other, other_boot_id FROM asked)
            UNION DISTINCT
            SELECT host, boot_id, kind, time, number FROM nagletrace.runs
            WHERE (host, boot_id) IN (SELECT other, other_boot_id FROM asked)
              AND (kind != 'report' OR time > (SELECT min(hour) - INTERVAL 1 HOUR FROM nagletrace.judging))
        ) AS lines
    ),
    -- Times of which a run may lack something: its numbers do not go on, or a report of them says so. Two seconds more at
    -- either side, since records that wait for the name of a process come later than others.
    gaps AS (
        SELECT host, boot_id, groupArray((from_time - INTERVAL 2 SECOND, to_time + INTERVAL 2 SECOND)) AS list
        FROM (
            SELECT host, boot_id, least(time_before, time) AS from_time, greatest(time_before, time) AS to_time
            FROM (
                SELECT *, lagInFrame(number, 1, -1) OVER run AS number_before, lagInFrame(time) OVER run AS time_before
                FROM told
                WINDOW run AS (PARTITION BY host, boot_id, began ORDER BY number, kind = 'report', time
                               ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
            ) AS in_order
            WHERE kind NOT IN ('start', 'streaming') AND number != number_before + (kind != 'report')
            UNION ALL
            SELECT host, boot_id, time - toIntervalMicrosecond(span_us), time FROM nagletrace.runs
            WHERE kind = 'report' AND NOT complete AND time > (SELECT min(hour) - INTERVAL 1 HOUR FROM nagletrace.judging)
              AND (host, boot_id) IN (SELECT other, other_boot_id FROM asked)
        ) AS lacking
        GROUP BY host, boot_id
    ),
    -- Times of which a report says that nothing is lacking; they follow one another up to a tenth of a second.
    whole AS (
        SELECT host, boot_id, groupArray((time - toIntervalMicrosecond(span_us + 100000), time)) AS list
        FROM nagletrace.runs
        WHERE kind = 'report' AND complete AND time > (SELECT min(hour) - INTERVAL 1 HOUR FROM nagletrace.judging)
          AND time - toIntervalMicrosecond(span_us) < (SELECT max(hour) + INTERVAL 2 HOUR FROM nagletrace.judging)
          AND (host, boot_id) IN (SELECT other, other_boot_id FROM asked)
        GROUP BY host, boot_id
    )
SELECT DISTINCT dated.hour AS hour, dated.ack_id AS ack_id, dated.host AS host, dated.boot_id AS boot_id,
                dated.side AS side, dated.other AS other
FROM dated
INNER JOIN nagletrace.witnesses AS w ON w.host = dated.other AND w.boot_id = dated.other_boot_id
INNER JOIN whole ON whole.host = dated.other AND whole.boot_id = dated.other_boot_id
LEFT JOIN gaps AS g ON g.host = dated.other AND g.boot_id = dated.other_boot_id
WHERE arrayExists(w -> dated.there_at - toIntervalMicrosecond(dated.give_us) BETWEEN w.1 AND w.2, whole.list)
  AND arrayExists(w -> dated.there_at + toIntervalMicrosecond(dated.give_us) BETWEEN w.1 AND w.2, whole.list)
  AND NOT arrayExists(gap -> gap.1 <= dated.there_at + toIntervalMicrosecond(dated.give_us)
                              AND gap.2 >= dated.there_at - toIntervalMicrosecond(dated.give_us), g.list)
  AND (dated.side = 'sender' OR w.of_holds)
  AND (dated.ack_id, dated.other, dated.other_boot_id, dated.side) NOT IN there
  AND dated.there_at - toIntervalMicrosecond(dated.give_us) > w.from_time
  AND dated.there_at + toIntervalMicrosecond(dated.give_us) < w.to_time;

-- Their rows again, a millisecond newer: what `meet` writes later counts more.
CREATE MATERIALIZED VIEW IF NOT EXISTS nagletrace.dismiss REFRESH EVERY 5 MINUTE DEPENDS ON nagletrace.meet
APPEND TO nagletrace.joined AS
SELECT j.* REPLACE ('contradicted' AS verdict, '' AS cause, '' AS reason, 0 AS excess_us, NULL AS ack_after_hold_us,
                    if(j.side = 'sender', j.sender_host, d.other) AS sender_host,
                    if(j.side = 'sender', d.other, j.receiver_host) AS receiver_host,
                    j.version + INTERVAL 1 MILLISECOND AS version)
FROM (
    SELECT * FROM nagletrace.joined FINAL
    WHERE hour IN (SELECT hour FROM nagletrace.judging) AND verdict = 'inferred' AND place = 0
) AS j
INNER JOIN nagletrace.dismissals AS d
    ON d.hour = j.hour AND d.ack_id = j.ack_id AND d.host = j.host AND d.boot_id = j.boot_id AND d.side = j.side
UNION ALL
SELECT m.* REPLACE ('judged' AS side, 'judged' AS verdict)
FROM (
    SELECT * FROM nagletrace.joined
    WHERE ack_id = 0 AND verdict = 'met' AND (hour, version) IN (SELECT hour, met_at FROM nagletrace.judging)
) AS m;

-- ---- what to ask ----

CREATE VIEW IF NOT EXISTS nagletrace.stalls AS
SELECT verdict, time, cause, reason, pattern, duration_us, excess_us, sender_host, receiver_host, sender, receiver,
       side, far_address, min_rtt_us, family, ack_after_hold_us, ahead_us,
       lower(leftPad(hex(joined.ack_id), 16, '0')) AS ack_id, host, boot_id, hour, version
FROM nagletrace.joined FINAL
WHERE verdict IN ('seen', 'inferred', 'contradicted');
