-- SPDX-License-Identifier: GPL-2.0
-- Which processes lose most time, of the last day: who held the bytes, and who delayed the ACK.
SELECT sender_host, sender.comm AS sender_process, sender.pod_uid AS sender_pod, receiver_host,
       receiver.comm AS receiver_process, receiver.pod_uid AS receiver_pod,
       count() AS stalls, countIf(verdict = 'seen') AS seen, round(sum(excess_us) / 1e6, 3) AS excess_s,
       round(quantile(0.5)(duration_us) / 1e3, 1) AS p50_ms, round(quantile(0.99)(duration_us) / 1e3, 1) AS p99_ms
FROM nagletrace.stalls
WHERE hour >= now('UTC') - INTERVAL 1 DAY AND verdict != 'contradicted'
GROUP BY sender_host, sender_process, sender_pod, receiver_host, receiver_process, receiver_pod
ORDER BY excess_s DESC LIMIT 20;
