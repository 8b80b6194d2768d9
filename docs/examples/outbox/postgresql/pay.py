# DATABASE_URL=postgres://shop:secret@localhost/shop python pay.py o-1
import json
import os
import sys

import psycopg
from psycopg.types.json import Jsonb


def pay(connection: psycopg.Connection, order_id: str) -> None:
    with connection.transaction():
        updated = connection.execute("UPDATE orders SET status = 'paid' WHERE id = %s", (order_id,))
        if updated.rowcount != 1:
            raise LookupError(f"no order {order_id}")
        payload = json.dumps({"id": order_id, "status": "paid"})
        connection.execute(
            "INSERT INTO outbox (topic, key, payload, headers) VALUES (%s, %s, %s, %s)",
            ("orders.paid", order_id, payload, Jsonb({"x-tenant": "acme"})),
        )


with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    pay(connection, sys.argv[1])
print(sys.argv[1], "is paid")
