-- SPDX-License-Identifier: GPL-2.0
-- One connection's story, the last 1000 stalls of a day: give {address} as either host knows it, with its port.
SELECT * FROM (
SELECT time, verdict, sender_host, sender.comm AS sender_process, sender.pid AS sender_pid,
       sender.hold.in_flight_bytes AS sent_bytes, sender.hold.bytes AS held_bytes, duration_us / 1e3 AS held_ms,
       receiver_host, receiver.comm AS receiver_process, receiver.pid AS receiver_pid,
       receiver.pending_ack.reason AS delayed_because, receiver.pending_ack.duration_us / 1e3 AS delayed_ms,
       sender.stack AS written_at
FROM nagletrace.stalls
WHERE hour >= now('UTC') - INTERVAL 1 DAY AND {address:String} IN (sender.address, receiver.address, far_address)
ORDER BY time DESC LIMIT 1000) ORDER BY time;
