-- SPDX-License-Identifier: GPL-2.0
-- For records that come by `nagletrace-exporter --otlp.endpoint` and an OpenTelemetry Collector whose ClickHouse exporter
-- writes the table otel_logs: run this once in that table's database, after schema.sql. What is in it already comes by
-- INSERT INTO nagletrace.incoming and the same SELECT.
CREATE MATERIALIZED VIEW IF NOT EXISTS nagletrace.from_otel TO nagletrace.incoming AS
WITH
    mapFilter((key, value) -> startsWith(key, 'nagletrace.'), LogAttributes) AS told,
    -- the path of a value in the record; the Collector makes text of each value
    mapKeys(told) AS keys,
    arrayMap((key, value) -> concat(toJSONString(substring(key, 12)), ':',
                                    if(match(key, '\\.(contradicted|locked|options\\.[a-z]+)$') AND value IN ('true', 'false'),
                                       value, toJSONString(value))),
             keys, mapValues(told)) AS values,
    multiIf(mapContains(told, 'nagletrace.cause'), 'stall',
            mapContains(told, 'nagletrace.side'), 'hold', 'late_ack') AS kind,
    concat('"sender.stack":', toJSONString(LogAttributes['code.stacktrace'])) AS stack
-- what is no record becomes null, which is counted as refused; with CAST it would stop the Collector's insert
SELECT ifNull(toJSONString(accurateCastOrNull(concat('{', arrayStringConcat(arrayConcat(values, [
           concat('"type":"', kind, '"'), concat('"time":"', toString(toDateTime64(Timestamp, 6, 'UTC')), 'Z"'),
           if(told['nagletrace.side'] = 'sender', stack, '"stack":""')]), ','), '}'), 'JSON(time String)')), 'null') AS line
FROM otel_logs
WHERE mapContains(told, 'nagletrace.boot_id');
