// DATABASE_URL=postgres://shop:secret@localhost/shop go run pay_pgx.go o-1
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func pay(ctx context.Context, pool *pgxpool.Pool, orderID string) error {
	// Commits when the function returns nil, and rolls back otherwise.
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		updated, err := tx.Exec(ctx, "UPDATE orders SET status = 'paid' WHERE id = $1", orderID)
		if err != nil {
			return err
		}
		if updated.RowsAffected() != 1 {
			return fmt.Errorf("no order %s", orderID)
		}
		payload, err := json.Marshal(map[string]string{"id": orderID, "status": "paid"})
		if err != nil {
			return err
		}
		headers := map[string]string{"x-tenant": "acme"}
		_, err = tx.Exec(ctx, "INSERT INTO outbox (topic, key, payload, headers) VALUES ($1, $2, $3, $4)",
			"orders.paid", orderID, string(payload), headers)
		return err
	})
}

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pay(ctx, pool, os.Args[1]); err != nil {
		log.Fatal(err)
	}
	fmt.Println(os.Args[1], "is paid")
}
