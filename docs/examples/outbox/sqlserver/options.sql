SET QUOTED_IDENTIFIER ON;

-- Once, even if the application tries again: the second insert finds the id, which is derived from what happened.
INSERT INTO dbo.outbox (id, topic, [key], payload)
SELECT '5f0c1c52-6d0e-5b38-9c1e-0a4b7d2f9e11', N'orders.paid', N'o-1', N'{"id":"o-1","status":"paid"}'
WHERE NOT EXISTS (SELECT 1 FROM dbo.outbox WITH (UPDLOCK, HOLDLOCK) WHERE id = '5f0c1c52-6d0e-5b38-9c1e-0a4b7d2f9e11');

-- In a quarter of an hour, and with 20 attempts instead of 5.
INSERT INTO dbo.outbox (topic, [key], payload, scheduled_at, max_attempts)
VALUES (N'orders.reminder', N'o-1', N'{"id":"o-1"}', DATEADD(minute, 15, SYSUTCDATETIME()), 20);

-- Several messages, in an order.
INSERT INTO dbo.outbox (topic, [key], payload)
SELECT N'orders.line-added', N'o-1', CONCAT(N'{"id":"o-1","line":', line, N'}')
FROM (VALUES (1), (2), (3)) AS lines (line)
ORDER BY line;
