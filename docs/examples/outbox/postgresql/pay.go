// DATABASE_URL=postgres://shop:secret@localhost/shop go run pay.go o-1
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"
	svcclient "github.com/svc-relay/svc/clients/go"
)

func pay(ctx context.Context, db *sql.DB, orderID string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit

	updated, err := tx.ExecContext(ctx, "UPDATE orders SET status = 'paid' WHERE id = $1", orderID)
	if err != nil {
		return err
	}
	if count, err := updated.RowsAffected(); err != nil {
		return err
	} else if count != 1 {
		return fmt.Errorf("no order %s", orderID)
	}
	_, err = svcclient.Enqueue(ctx, tx, svcclient.Message{
		Topic:   "orders.paid",
		Key:     svcclient.Key(orderID),
		Payload: map[string]string{"id": orderID, "status": "paid"},
		Headers: map[string]string{"x-tenant": "acme"},
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func main() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := pay(context.Background(), db, os.Args[1]); err != nil {
		log.Fatal(err)
	}
	fmt.Println(os.Args[1], "is paid")
}
