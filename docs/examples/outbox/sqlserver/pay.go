// SHOP='sqlserver://shop:secret@localhost:1433?database=shop' go run pay.go o-1
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"

	_ "github.com/microsoft/go-mssqldb"
)

func pay(ctx context.Context, db *sql.DB, orderID string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit

	updated, err := tx.ExecContext(ctx, "UPDATE dbo.orders SET status = N'paid' WHERE id = @p1;", orderID)
	if err != nil {
		return err
	}
	if count, err := updated.RowsAffected(); err != nil {
		return err
	} else if count != 1 {
		return fmt.Errorf("no order %s", orderID)
	}
	payload, err := json.Marshal(map[string]string{"id": orderID, "status": "paid"})
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO dbo.outbox (topic, [key], payload, headers) VALUES (@p1, @p2, @p3, @p4);",
		"orders.paid", orderID, string(payload), `{"x-tenant": "acme"}`)
	if err != nil {
		return err
	}
	return tx.Commit()
}

func main() {
	db, err := sql.Open("sqlserver", os.Getenv("SHOP"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := pay(context.Background(), db, os.Args[1]); err != nil {
		log.Fatal(err)
	}
	fmt.Println(os.Args[1], "is paid")
}
