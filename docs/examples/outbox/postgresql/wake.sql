SELECT pg_notify('svc__outbox', '');
