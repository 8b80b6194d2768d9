GRANT INSERT ON dbo.outbox TO shop;
-- For OUTPUT inserted.id, and for looking whether an id is there:
GRANT SELECT (id) ON dbo.outbox TO shop;
