DELETE FROM outbox WHERE topic = 'orders.reminder' AND key = 'o-1' AND state = 'pending' RETURNING id;
