package svcclient

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// PulledMessage is a received message.
type PulledMessage struct {
	ID string
	// AggregateID orders messages; nil if the message has no order.
	AggregateID *string
	// EventType and CorrelationID are empty if there is none.
	EventType, CorrelationID string
	// IdempotencyKey is unique in the source of the message.
	IdempotencyKey string
	// Attempt counts the claims so far, this one included.
	Attempt int
	Headers map[string]string
	// Payload is the text that was received, usually JSON. Over HTTP a text that is not JSON comes as a JSON string.
	Payload json.RawMessage
}

// Claim is what a source has claimed.
type Claim struct {
	Token string
	// Messages are in order, the oldest first.
	Messages []PulledMessage
}

// Source is where messages come from: [SQLSource] or [HTTPSource].
type Source interface {
	// Claim returns at most max messages.
	Claim(ctx context.Context, max int, lease time.Duration) (Claim, error)
	// Renew returns the ids that are still held.
	Renew(ctx context.Context, claim Claim, ids []string, lease time.Duration) ([]string, error)
	// Handled calls handle, acknowledges the message in its transaction, and reports whether the message was still held.
	// If it was not, or if there is an error, nothing is written. Over HTTP the transaction is nil.
	Handled(ctx context.Context, claim Claim, id string, handle func(tx *sql.Tx) error) (bool, error)
	// Retry returns the message after the delay. Later messages of its aggregate are given back.
	Retry(ctx context.Context, claim Claim, id string, delay time.Duration, reason string) error
	// Dead ends the message, and reports whether it did. If it did not, it has done as Retry does, without a delay.
	Dead(ctx context.Context, claim Claim, id, reason string) (bool, error)
	// Release gives back what is left of the claim.
	Release(ctx context.Context, claim Claim, ids []string) error
}

// Dead is the error of a handler that says that the message can never be handled. Later messages of its aggregate are
// handled as usual. Over HTTP the service decides when a message is dead, and this is a failed attempt.
func Dead(reason string) error { return &verdict{reason: reason, isDead: true} }

// Retry is the error of a handler that says after which delay the message comes again.
func Retry(delay time.Duration, reason string) error { return &verdict{reason: reason, delay: delay} }

type verdict struct {
	reason string
	delay  time.Duration
	isDead bool
}

func (v *verdict) Error() string { return v.reason }

// The causes of the end of a handler's context, see [context.Cause].
var (
	// ErrLeaseLost says that another worker may have the message.
	ErrLeaseLost = errors.New("svcclient: the lease of this message is lost")
	ErrStopped   = errors.New("svcclient: the worker stops")
)

// Result is how the handling of a message ended.
type Result string

// The results. A message is lost if its lease was lost or its result could not be written; it is released if it was
// given back.
const ResultDone, ResultRetry, ResultDead, ResultLost, ResultReleased Result = "done", "retry", "dead", "lost", "released"

// Hooks are for metrics and logs. Several goroutines may call them at a time. They must not panic.
type Hooks struct {
	Claimed func(messages []PulledMessage)
	Ended   func(message PulledMessage, result Result, duration time.Duration)
	// Failed gets the error of a claim, a renewal or a result. The worker tries again.
	Failed func(err error)
}

// WorkerOptions are the options of [NewWorker]. Zero values are the defaults; Source and Handler are required.
type WorkerOptions struct {
	Source Source
	// Handler handles a message. An error returns the message after a delay; see also [Dead] and [Retry]. Over SQL tx is
	// the transaction in which the message is acknowledged; over HTTP it is nil. The context ends when the lease is lost,
	// or when a stop waits no longer.
	Handler func(ctx context.Context, message PulledMessage, tx *sql.Tx) error
	// Concurrency is the highest number of messages at a time; default 1.
	Concurrency int
	// Lease is renewed every third of it; default 30 s. Over HTTP it is at least a second.
	Lease time.Duration
	// RetryDelay is the time before a message whose handler failed comes again, by its attempt from 1 on. By default it
	// is a second, doubled up to a minute.
	RetryDelay func(attempt int) time.Duration
	// Poll is the time between two claims that find nothing; default 500 ms.
	Poll time.Duration
	// StopTimeout is the time for handlers to end at a stop; default 30 s. If it is negative, a stop cancels them at once.
	StopTimeout time.Duration
	Hooks       Hooks
}

// Worker takes messages of a source and calls the handler for each.
type Worker struct{ options WorkerOptions }

// NewWorker returns a worker, which [Worker.Run] starts.
func NewWorker(options WorkerOptions) *Worker {
	if options.RetryDelay == nil {
		options.RetryDelay = func(attempt int) time.Duration { return min(time.Second<<min(max(attempt-1, 0), 6), time.Minute) }
	}
	options.Lease = cmp.Or(options.Lease, 30*time.Second)
	options.Poll = cmp.Or(options.Poll, 500*time.Millisecond)
	options.StopTimeout = cmp.Or(options.StopTimeout, 30*time.Second)
	return &Worker{options}
}

// Run works until ctx ends. Then it claims no more, lets handlers end for StopTimeout, cancels the others, and gives
// their messages back. It returns when nothing runs any more. The only error is that of wrong options; those of the
// database or the service go to the hook Failed.
func (w *Worker) Run(ctx context.Context) error {
	if w.options.Source == nil || w.options.Handler == nil || w.options.Lease < time.Millisecond {
		return errors.New("svcclient: WorkerOptions lacks Source, Handler or a positive Lease, expected all of them")
	}
	base := context.WithoutCancel(ctx)
	handlers, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	r := &run{WorkerOptions: w.options, stop: ctx, base: base, handlers: handlers}
	r.slots = make(chan struct{}, max(r.Concurrency, 1))
	r.claimAll()
	defer time.AfterFunc(r.StopTimeout, func() { cancel(ErrStopped) }).Stop()
	r.batches.Wait()
	return nil
}

// run is a worker at work.
type run struct {
	WorkerOptions
	stop     context.Context // Ends at the stop.
	base     context.Context // Never ends.
	handlers context.Context // Ends when a stop waits no longer.
	batches  sync.WaitGroup
	slots    chan struct{} // Holds an element for each message without a result.
}

// batch is the work on a claim.
type batch struct {
	claim    Claim
	tasks    []*task
	handling sync.WaitGroup
}

// task is the work on a message.
type task struct {
	message PulledMessage
	ctx     context.Context
	cancel  context.CancelCauseFunc
	// isEnding: from now on the acknowledgement tells whether the message was lost, and a renewal does not.
	isEnding, hasEnded atomic.Bool
}

func (t *task) isLost() bool { return context.Cause(t.ctx) == ErrLeaseLost }

// open returns what has no result yet.
func (b *batch) open() (tasks []*task, ids []string) {
	for _, t := range b.tasks {
		if !t.hasEnded.Load() {
			tasks, ids = append(tasks, t), append(ids, t.message.ID)
		}
	}
	return tasks, ids
}

func (r *run) claimAll() {
	wait := r.Poll
	for r.stop.Err() == nil {
		select {
		case r.slots <- struct{}{}: // A slot is free.
			<-r.slots
		case <-r.stop.Done():
			return
		}
		claimedAt := time.Now()
		claim, err := r.Source.Claim(r.stop, cap(r.slots)-len(r.slots), r.Lease)
		if err == nil {
			wait = r.Poll
		} else if r.stop.Err() == nil {
			r.failed(err)
			wait = min(wait*2, 10*time.Second)
		}
		if len(claim.Messages) > 0 {
			if r.Hooks.Claimed != nil {
				r.Hooks.Claimed(claim.Messages)
			}
			r.batches.Add(1)
			r.work(claim, claimedAt)
			continue
		}
		select {
		case <-time.After(wait):
		case <-r.stop.Done():
		}
	}
}

// work starts the handlers of a claim.
func (r *run) work(claim Claim, claimedAt time.Time) {
	b := &batch{claim: claim}
	chains := map[string][]*task{}
	for _, message := range claim.Messages {
		r.slots <- struct{}{}
		t := &task{message: message}
		t.ctx, t.cancel = context.WithCancelCause(r.handlers)
		b.tasks = append(b.tasks, t)
		chain := "id " + message.ID
		if message.AggregateID != nil {
			chain = "of " + *message.AggregateID
		}
		chains[chain] = append(chains[chain], t)
	}
	b.handling.Add(len(chains))
	for _, chain := range chains {
		go r.handleChain(b, chain)
	}
	done := make(chan struct{})
	go func() {
		b.handling.Wait()
		close(done)
	}()
	go r.renew(b, claimedAt, done)
}

// handleChain handles messages in order, up to one that is not handled. What it leaves open is released.
func (r *run) handleChain(b *batch, chain []*task) {
	defer b.handling.Done()
	for n, t := range chain {
		if r.stop.Err() != nil || t.ctx.Err() != nil || !r.handle(b, t, chain[n+1:]) {
			return
		}
	}
}

// handle reports whether the next message of the aggregate may be handled.
func (r *run) handle(b *batch, t *task, later []*task) bool {
	startedAt := time.Now()
	id := t.message.ID
	isHeld, err := r.Source.Handled(t.ctx, b.claim, id, func(tx *sql.Tx) error {
		if err := r.call(t, tx); err != nil {
			return err
		}
		t.isEnding.Store(true)
		return context.Cause(t.ctx)
	})
	result := ResultLost
	switch {
	case err == nil && isHeld:
		result = ResultDone
	case err == nil || t.isLost():
	case t.ctx.Err() != nil:
		return false
	default:
		result = r.fail(b, t.message, err)
	}
	r.end(t, result, time.Since(startedAt))
	for _, next := range later {
		if result == ResultRetry {
			r.end(next, ResultReleased, 0)
		}
	}
	return result == ResultDone || result == ResultDead
}

// fail says to the source that a handler failed.
func (r *run) fail(b *batch, message PulledMessage, err error) Result {
	ctx, cancel := context.WithTimeout(r.base, r.Lease)
	defer cancel()
	reason, isDead, said := err.Error(), false, &verdict{delay: r.RetryDelay(message.Attempt)}
	if errors.As(err, &said); said.isDead {
		isDead, err = r.Source.Dead(ctx, b.claim, message.ID, reason)
	} else {
		err = r.Source.Retry(ctx, b.claim, message.ID, max(said.delay, 0), reason)
	}
	r.failed(err)
	switch {
	case err != nil:
		return ResultLost // Its lease ends, and it comes again.
	case isDead:
		return ResultDead
	}
	return ResultRetry
}

// call makes a panic of the handler its error.
func (r *run) call(t *task, tx *sql.Tx) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("the handler panicked: %v", panicked)
		}
	}()
	return r.Handler(t.ctx, t.message, tx)
}

// renew renews the lease every third of it until all is done, and releases what is left. After a failure the next
// renewal may succeed, until the lease is over.
func (r *run) renew(b *batch, renewedAt time.Time, done <-chan struct{}) {
	defer r.batches.Done()
	defer r.release(b)
	ticker := time.NewTicker(r.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		tasks, ids := b.open()
		if len(ids) == 0 {
			continue
		}
		sentAt := time.Now()
		ctx, cancel := context.WithTimeout(r.base, r.Lease/3)
		kept, err := r.Source.Renew(ctx, b.claim, ids, r.Lease)
		cancel()
		r.failed(err)
		switch {
		case err == nil:
			renewedAt = sentAt
		case time.Since(renewedAt) < r.Lease:
			continue
		}
		for _, t := range tasks {
			if !t.isEnding.Load() && (err != nil || !slices.Contains(kept, t.message.ID)) {
				t.cancel(ErrLeaseLost)
			}
		}
	}
}

func (r *run) release(b *batch) {
	tasks, ids := b.open()
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.base, r.Lease)
	defer cancel()
	r.failed(r.Source.Release(ctx, b.claim, ids))
	for _, t := range tasks {
		r.end(t, ResultReleased, 0)
	}
}

func (r *run) end(t *task, result Result, duration time.Duration) {
	if result == ResultReleased && t.isLost() {
		result = ResultLost
	}
	t.hasEnded.Store(true)
	t.cancel(nil)
	if r.Hooks.Ended != nil {
		r.Hooks.Ended(t.message, result, duration)
	}
	<-r.slots
}

func (r *run) failed(err error) {
	if err != nil && r.Hooks.Failed != nil {
		r.Hooks.Failed(err)
	}
}
