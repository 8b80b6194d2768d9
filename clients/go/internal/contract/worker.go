package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	svcclient "github.com/svc-relay/svc/clients/go"
)

type expectedState struct {
	State     string
	Attempt   int
	LastError *string
	HTTP      *expectedState
}

// workerRun is a case at work.
type workerRun struct {
	*environment
	*contractCase
	transport string
	stop      context.CancelFunc // Of the first worker.
	stopped   chan struct{}      // Closed when the first worker has returned.

	mu        sync.Mutex
	calls     []call
	running   map[string]bool
	cancelled []string
	problems  []error // Of the case itself.
	failures  []error // That the worker reported.
}

const httpWait = 100 * time.Millisecond

type call struct{ id, aggregate string }

func (e *environment) workerCase(ctx context.Context, transport string, c *contractCase) error {
	r := &workerRun{environment: e, contractCase: c, transport: transport}
	r.running, r.stopped = map[string]bool{}, make(chan struct{})
	if err := e.execute(ctx, "TRUNCATE inbox, written"); err != nil {
		return err
	}
	for _, m := range c.Messages {
		_, err := e.db.ExecContext(ctx, `INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, consumption)
			VALUES ('pulled', $1, $2, $3, 'pull')`, m.ID, m.Aggregate, payloadOf(m.ID))
		if err != nil {
			return err
		}
	}
	var workers sync.WaitGroup
	stops := []context.CancelFunc{}
	for n := 0; n < max(c.Workers, 1); n++ {
		workerCtx, stop := context.WithCancel(ctx)
		stops = append(stops, stop)
		if n == 0 {
			r.stop = stop
		}
		workers.Add(1)
		go func() {
			defer workers.Done()
			err := r.worker().Run(workerCtx)
			r.mu.Lock()
			r.problems = append(r.problems, err)
			r.mu.Unlock()
			if n == 0 {
				close(r.stopped)
			}
		}()
	}
	err := r.awaitStates(ctx)
	for _, stop := range stops {
		stop()
	}
	workers.Wait()
	return errors.Join(err, r.compare(ctx))
}

func payloadOf(id string) string { return `{"id":"` + id + `"}` }

func (r *workerRun) worker() svcclient.Worker {
	milliseconds := func(value *int64) time.Duration {
		if value == nil {
			return 0
		}
		return time.Duration(*value) * time.Millisecond
	}
	settings := r.Worker
	retryDelay := cmp.Or(milliseconds(settings.RetryDelayMs), 50*time.Millisecond)
	worker := svcclient.Worker{
		Source:      svcclient.SQLSource{DB: r.db, Source: "pulled", MaxAttempts: settings.MaxAttempts},
		Handler:     r.handle,
		Concurrency: settings.Concurrency,
		Lease:       milliseconds(settings.LeaseMs),
		RetryDelay:  func(int) time.Duration { return retryDelay },
		Poll:        20 * time.Millisecond,
		StopTimeout: milliseconds(settings.StopTimeoutMs),
		Failed: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failures = append(r.failures, err)
		},
	}
	if r.transport == "http" {
		worker.Source = svcclient.HTTPSource{
			URL:    os.Getenv("PULL_URL"),
			Source: "pulled",
			Header: http.Header{"Authorization": {"Bearer " + os.Getenv("PULL_TOKEN")}},
			Wait:   httpWait,
		}
	}
	return worker
}

func (r *workerRun) handle(ctx context.Context, message svcclient.PulledMessage, tx *sql.Tx) error {
	id := message.IdempotencyKey
	chain, aggregate := id, ""
	if message.AggregateID != nil {
		chain, aggregate = *message.AggregateID, *message.AggregateID
	}
	r.mu.Lock()
	if got := string(message.Payload); got != payloadOf(id) {
		r.problems = append(r.problems, fmt.Errorf("the payload of %s is %s", id, got))
	}
	if r.running[chain] {
		r.problems = append(r.problems, fmt.Errorf("two messages of %s are handled at a time", chain))
	}
	r.running[chain] = true
	earlier := 0
	for _, other := range r.calls {
		if other.id == id {
			earlier++
		}
	}
	r.calls = append(r.calls, call{id, aggregate})
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.running[chain] = false
		r.mu.Unlock()
	}()
	for _, event := range r.Events {
		if event.WhenStarted == id && earlier == 0 {
			if err := r.execute(context.Background(), event.SQL); err != nil {
				return err
			}
		}
	}
	if r.StopWhenStarted == id {
		r.stop()
	}
	script := r.Handler[id]
	if script == nil {
		script = r.Handler["*"]
	}
	if script == nil {
		script = []string{"ok"}
	}
	return r.act(ctx, script[min(earlier, len(script)-1)], id, tx)
}

func (r *workerRun) act(ctx context.Context, what, id string, tx *sql.Tx) error {
	action, ms, _ := strings.Cut(what, ":")
	switch action {
	case "wait":
		wait, err := strconv.Atoi(ms)
		if err != nil {
			return err
		}
		time.Sleep(time.Duration(wait) * time.Millisecond)
	case "until-cancelled":
		<-ctx.Done()
		r.mu.Lock()
		r.cancelled = append(r.cancelled, id)
		r.mu.Unlock()
		return context.Cause(ctx)
	case "write", "write-then-fail":
		if _, err := tx.ExecContext(ctx, "INSERT INTO written VALUES ($1)", id); err != nil {
			return err
		}
	}
	switch action {
	case "fail", "write-then-fail":
		return errors.New("handler said no")
	case "dead":
		return svcclient.Dead("never again")
	}
	return nil
}

// awaitStates waits until the inbox is as expected, and returns the last difference if it never is.
func (r *workerRun) awaitStates(ctx context.Context) error {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := r.compareStates(ctx)
		if err == nil && r.StopWhenStarted != "" {
			select {
			case <-r.stopped:
			default:
				err = errors.New("the worker has not stopped")
			}
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (r *workerRun) compareStates(ctx context.Context) error {
	rows, err := texts(r.db.QueryContext(ctx, `SELECT jsonb_build_object('id', idempotency_key, 'state', state,
		'attempt', attempt, 'lastError', last_error, 'isClaimed', claim_token IS NOT NULL)::text FROM inbox`))
	if err != nil {
		return err
	}
	if len(rows) != len(r.States) {
		return fmt.Errorf("the inbox has %d rows, expected %d", len(rows), len(r.States))
	}
	for _, row := range rows {
		var got struct {
			ID, State string
			Attempt   int
			LastError *string
			IsClaimed bool
		}
		if err := json.Unmarshal([]byte(*row), &got); err != nil {
			return err
		}
		want := r.States[got.ID]
		if r.transport == "http" && want.HTTP != nil {
			want = *want.HTTP
		}
		isError := want.LastError == nil || got.LastError != nil && *got.LastError == *want.LastError
		if got.State != want.State || got.Attempt != want.Attempt || got.IsClaimed || !isError {
			return fmt.Errorf("found %s, expected %s without a claim", *row, shown(want))
		}
	}
	return nil
}

func (r *workerRun) compare(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := errors.Join(r.problems...)
	for aggregate, want := range r.Order {
		got := []string{}
		for _, call := range r.calls {
			if call.aggregate == aggregate {
				got = append(got, call.id)
			}
		}
		err = errors.Join(err, different("the calls for "+aggregate, got, want))
	}
	err = errors.Join(err, different("the cancelled handlers", r.cancelled, r.Cancelled))
	if r.Written != nil {
		rows, failure := texts(r.db.QueryContext(ctx, "SELECT id FROM written"))
		written := []string{}
		for _, id := range rows {
			written = append(written, *id)
		}
		err = errors.Join(err, failure, different("the written ids", written, r.Written))
	}
	if err != nil && len(r.failures) > 0 {
		err = fmt.Errorf("%w; the worker reported %w", err, errors.Join(r.failures...))
	}
	return err
}
