SET QUOTED_IDENTIFIER ON;
DELETE FROM dbo.outbox WHERE topic = N'orders.reminder' AND [key] = N'o-1' AND state = N'pending';
