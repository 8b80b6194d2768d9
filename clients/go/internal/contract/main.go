// Command contract runs the cases of clients/contract: see its README. It is a module of its own, so that the client
// has no driver as a dependency.
//
// Arguments select cases by their kind, such as worker-sql, or their id.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	svcclient "github.com/svc-relay/svc/clients/go"
)

type contractCase struct {
	ID, Kind   string
	Transports []string

	// enqueue
	Setup      []string
	Options    svcclient.Outbox
	Steps      []step
	Rows       []map[string]any
	RowsByCell map[string][]*string

	// worker
	Messages []struct {
		ID        string
		Aggregate *string
	}
	Handler map[string][]string
	States  map[string]expectedState
	Order   map[string][]string
	Worker  struct {
		Concurrency                          int
		LeaseMs, RetryDelayMs, StopTimeoutMs *int64
		MaxAttempts                          int
	}
	Workers         int
	Events          []struct{ WhenStarted, SQL string }
	StopWhenStarted string
	Cancelled       []string
	Written         []string

	// once
	Calls []struct {
		Message, End      string
		Runs              bool
		ForgetOlderThanMs *int64
	}
}

// environment is what the cases run against.
type environment struct {
	db   *sql.DB
	pool *pgxpool.Pool
}

// kinds are the kinds of the output, each with the kind of its cases, in order.
var kinds = []struct {
	name, of string
	run      func(context.Context, *environment, *contractCase) error
}{
	{"enqueue", "enqueue", func(ctx context.Context, e *environment, c *contractCase) error {
		return e.enqueueCase(ctx, e.beginSQL, c)
	}},
	{"enqueue-pgx", "enqueue", func(ctx context.Context, e *environment, c *contractCase) error {
		return e.enqueueCase(ctx, e.beginPgx, c)
	}},
	{"worker-sql", "worker", func(ctx context.Context, e *environment, c *contractCase) error {
		return e.workerCase(ctx, "sql", c)
	}},
	{"worker-http", "worker", func(ctx context.Context, e *environment, c *contractCase) error {
		return e.workerCase(ctx, "http", c)
	}},
	{"once", "once", func(ctx context.Context, e *environment, c *contractCase) error {
		return e.onceCase(ctx, e.beginSQL, c)
	}},
	{"once-pgx", "once", func(ctx context.Context, e *environment, c *contractCase) error {
		return e.onceCase(ctx, e.beginPgx, c)
	}},
}

func main() {
	failed, err := runAll(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

func runAll(ctx context.Context, selected []string) (failed int, err error) {
	text, err := os.ReadFile(os.Getenv("CONTRACT_CASES"))
	if err != nil {
		return 0, fmt.Errorf("CONTRACT_CASES: %w", err)
	}
	var file struct{ Cases []contractCase }
	if err := json.Unmarshal(text, &file); err != nil {
		return 0, fmt.Errorf("CONTRACT_CASES: %w", err)
	}
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return 0, fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer db.Close()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return 0, fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer pool.Close()
	e := &environment{db: db, pool: pool}
	svcclient.Traceparent = activeSpan
	for _, kind := range kinds {
		for _, c := range file.Cases {
			isSelected := len(selected) == 0 || slices.Contains(selected, kind.name) || slices.Contains(selected, c.ID)
			if c.Kind != kind.of || !isSelected {
				continue
			}
			if c.Kind == "worker" && c.Transports != nil && !slices.Contains(c.Transports, kind.name[len("worker-"):]) {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			err := kind.run(limited, e, &c)
			cancel()
			if err != nil {
				failed++
				fmt.Printf("not ok %s %s: %s\n", kind.name, c.ID, strings.ReplaceAll(err.Error(), "\n", "; "))
			} else {
				fmt.Printf("ok %s %s\n", kind.name, c.ID)
			}
		}
	}
	return failed, nil
}

func (e *environment) execute(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := e.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// transaction is one of database/sql or pgx.
type transaction interface {
	client() svcclient.Transaction
	execute(ctx context.Context, statement string) error
	end(ctx context.Context, commits bool) error
}

type begin func(ctx context.Context) (transaction, error)

// onceCase compares what ran.
func (e *environment) onceCase(ctx context.Context, begin begin, c *contractCase) error {
	if err := e.execute(ctx, "TRUNCATE handled_messages"); err != nil {
		return err
	}
	for n, call := range c.Calls {
		tx, err := begin(ctx)
		if err != nil {
			return err
		}
		if call.ForgetOlderThanMs != nil {
			olderThan := time.Duration(*call.ForgetOlderThanMs) * time.Millisecond
			if err := errors.Join(svcclient.Forget(ctx, tx.client(), olderThan), tx.end(ctx, true)); err != nil {
				return err
			}
			continue
		}
		hasRun := false
		isFirst, err := svcclient.Once(ctx, tx.client(), call.Message, func() error {
			hasRun = true
			return nil
		})
		if err := errors.Join(err, tx.end(ctx, call.End == "commit")); err != nil {
			return err
		}
		if hasRun != call.Runs || isFirst != call.Runs {
			return fmt.Errorf("call %d ran: %v, returned %v, expected %v", n, hasRun, isFirst, call.Runs)
		}
	}
	return nil
}

func different(what string, got, want any) error {
	if reflect.DeepEqual(got, want) {
		return nil
	}
	return fmt.Errorf("%s: found %s, expected %s", what, shown(got), shown(want))
}

func shown(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
