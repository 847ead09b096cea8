-- SPDX-License-Identifier: GPL-2.0
-- What one end took for a stall and the other host contradicts, of the last day. Where side is `sender`,
-- look at the network: the ACK was not late. Where it is `receiver`, the sender held nothing, or not for long.
-- Clients have another port for each connection, 32768 or higher: all of them are one.
SELECT sender_host, sender.comm AS sender_process, receiver_host,
       if(toUInt16OrZero(extract(far_address, ':([0-9]+)$')) < 32768, far_address,
          replaceRegexpOne(far_address, ':[0-9]+$', '')) AS far, count() AS waits,
       round(quantile(0.5)(duration_us) / 1e3, 1) AS p50_ms, max(time) AS last, side
FROM nagletrace.stalls
WHERE hour >= now('UTC') - INTERVAL 1 DAY AND verdict = 'contradicted'
GROUP BY sender_host, sender_process, receiver_host, far, side
ORDER BY waits DESC LIMIT 20;
