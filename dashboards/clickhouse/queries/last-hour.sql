-- SPDX-License-Identifier: GPL-2.0
-- The last hour by cause and reason: what the sender did, why the receiver delayed the ACK, and how sure that is.
SELECT cause, reason, pattern, receiver.pending_ack.reason AS delayed_because, verdict, count() AS stalls,
       uniqExact(sender_host, receiver_host) AS pairs_of_hosts, round(sum(excess_us) / 1e6, 3) AS excess_s
FROM nagletrace.stalls
WHERE time > now64(6, 'UTC') - INTERVAL 1 HOUR AND hour >= now('UTC') - INTERVAL 2 HOUR AND verdict != 'contradicted'
GROUP BY cause, reason, pattern, delayed_because, verdict
ORDER BY excess_s DESC;
