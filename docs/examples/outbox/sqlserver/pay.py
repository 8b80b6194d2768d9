# SHOP='Driver={ODBC Driver 18 for SQL Server};Server=localhost;Database=shop;UID=shop;PWD=secret' python pay.py o-1
import json
import os
import sys
from contextlib import closing

import pyodbc


def pay(connection: pyodbc.Connection, order_id: str) -> None:
    with connection:  # commits at the end, and rolls back when an exception leaves it
        updated = connection.execute("UPDATE dbo.orders SET status = N'paid' WHERE id = ?;", order_id)
        if updated.rowcount != 1:
            raise LookupError(f"no order {order_id}")
        connection.execute(
            "INSERT INTO dbo.outbox (topic, [key], payload, headers) VALUES (?, ?, ?, ?);",
            "orders.paid",
            order_id,
            json.dumps({"id": order_id, "status": "paid"}),
            json.dumps({"x-tenant": "acme"}),
        )


with closing(pyodbc.connect(os.environ["SHOP"])) as connection:
    pay(connection, sys.argv[1])
print(sys.argv[1], "is paid")
