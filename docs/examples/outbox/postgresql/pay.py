# DATABASE_URL=postgres://shop:secret@localhost/shop python pay.py o-1
import os
import sys

import psycopg
from svc_client import enqueue, from_psycopg


def pay(connection: psycopg.Connection, order_id: str) -> None:
    with connection.transaction():
        updated = connection.execute("UPDATE orders SET status = 'paid' WHERE id = %s", (order_id,))
        if updated.rowcount != 1:
            raise LookupError(f"no order {order_id}")
        enqueue(
            from_psycopg(connection),
            topic="orders.paid",
            key=order_id,
            payload={"id": order_id, "status": "paid"},
            headers={"x-tenant": "acme"},
        )


with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    pay(connection, sys.argv[1])
print(sys.argv[1], "is paid")
