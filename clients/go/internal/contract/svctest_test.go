package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	svcclient "github.com/svc-relay/svc/clients/go"
	"github.com/svc-relay/svc/clients/go/svctest"
)

// Messages of two drivers go through the real service.
func TestThroughTheService(t *testing.T) {
	ctx := context.Background()
	receiver := svctest.NewReceiver(t, nil)
	dev := svctest.RunDev(t, svctest.DevOptions{Receiver: receiver})
	db, err := sql.Open("pgx", dev.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	at := time.Now().Add(-time.Minute)
	first := svcclient.Message{
		Topic:       "orders.paid",
		Key:         svcclient.Key("o-1"),
		Payload:     map[string]int{"n": 1},
		Headers:     map[string]string{"x-tenant": "acme"},
		Destination: "receiver",
		DeliverAt:   at,
	}
	id, err := svcclient.Enqueue(ctx, tx, first)
	if err != nil {
		t.Fatal(err)
	}
	found := svctest.AssertEnqueued(t, ctx, tx, first)
	if found.ID != id || string(found.JSON) != `{"n":1}` {
		t.Errorf("found %+v, expected %s", found, id)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}

	conn, err := pgx.Connect(ctx, dev.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		second := svcclient.Message{Topic: "orders.sent", Key: svcclient.Key("o-1"), JSON: json.RawMessage("2.0")}
		_, err := svcclient.Enqueue(ctx, svcclient.FromPgx(tx), second)
		if err == nil {
			svctest.AssertEnqueued(t, ctx, svctest.FromPgx(tx), second)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	got := receiver.Wait(t, 2, 30*time.Second)
	bodies := fmt.Sprintf("%s %s", got[0].Body, got[1].Body)
	if got[0].MessageID != id || got[0].Header.Get("X-Tenant") != "acme" || bodies != `{"n":1} 2.0` {
		t.Errorf("found %+v, expected the two messages in order", got)
	}
}
