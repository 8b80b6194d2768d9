SET QUOTED_IDENTIFIER ON;
SET XACT_ABORT ON;
BEGIN TRANSACTION;

-- Locks the order: other changes of it wait here, and send their messages later.
UPDATE dbo.orders SET status = N'paid' WHERE id = N'o-1';

INSERT INTO dbo.outbox (topic, [key], payload, headers)
VALUES (N'orders.paid', N'o-1', (SELECT N'o-1' AS id, N'paid' AS status FOR JSON PATH, WITHOUT_ARRAY_WRAPPER),
        N'{"x-tenant": "acme"}');

COMMIT TRANSACTION;
