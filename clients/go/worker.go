package svcclient

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
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

// Claim is what a source has claimed. Its messages share a lease.
type Claim struct {
	Token string `json:"claimToken"`
	// Messages are in order, the oldest first.
	Messages []PulledMessage
}

// Source is where messages come from: [SQLSource] or [HTTPSource].
type Source interface {
	// Claim returns at most max messages, or none.
	Claim(ctx context.Context, max int, lease time.Duration) (Claim, error)
	// Renew renews the lease from now on, and returns the ids of the messages that are still held.
	Renew(ctx context.Context, claim Claim, lease time.Duration) ([]string, error)
	// Handled calls handle, acknowledges the message in its transaction, and reports whether the message was still held.
	// If it was not, or if there is an error, nothing is written. Over HTTP the transaction is nil.
	Handled(ctx context.Context, claim Claim, id string, handle func(tx *sql.Tx) error) (bool, error)
	// Fail returns ResultDead if it has ended the message, or ResultRetry if the message comes again after the delay: then it
	// has given back later messages of the aggregate. It returns ResultLost if the message was not held any more.
	Fail(ctx context.Context, claim Claim, id string, failure Failure) (Result, error)
	// Release gives back what is left of the claim.
	Release(ctx context.Context, claim Claim) error
}

// Failure is the error of a handler that says what becomes of the message: see [Dead] and [Retry].
type Failure struct {
	Reason string
	// Delay is the time before the message comes again.
	Delay time.Duration
	// IsDead says that the message never comes again.
	IsDead bool
}

func (f *Failure) Error() string { return f.Reason }

// Dead is the error of a handler that says that the message can never be handled; the reason is in last_error. Later
// messages of its aggregate follow. Over HTTP it counts as an attempt, and inbox.pull.maxAttempts ends the message.
func Dead(reason string) error { return &Failure{Reason: reason, IsDead: true} }

// Retry is the error of a handler that says after which delay the message comes again.
func Retry(delay time.Duration, reason string) error { return &Failure{Reason: reason, Delay: delay} }

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

// Worker takes messages of a source and calls the handler for each. Zero values are the defaults; Source and Handler are
// required.
type Worker struct {
	Source Source
	// Handler handles a message. An error returns the message after a delay, with the error in last_error; see also [Dead]
	// and [Retry]. Over SQL tx is the transaction in which the message is acknowledged; over HTTP it is nil. The context
	// ends when the lease is lost, or when a stop waits no longer.
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

	// Claimed, Ended and Failed are hooks for metrics and logs. Several goroutines may call them at a time. They must not
	// panic. Failed gets the error of a claim, a renewal or a result; the worker tries again. By default it is logged.
	Claimed func(messages []PulledMessage)
	Ended   func(message PulledMessage, result Result, duration time.Duration)
	Failed  func(err error)
}

// Run works until ctx ends. Then it claims no more, lets handlers end for StopTimeout, cancels the others, and gives
// their messages back. It returns when nothing runs any more. The only error is that of wrong options; those of the
// database or the service go to Failed.
func (w Worker) Run(ctx context.Context) error {
	w.Lease = cmp.Or(w.Lease, 30*time.Second)
	w.Poll = cmp.Or(w.Poll, 500*time.Millisecond)
	w.StopTimeout = cmp.Or(w.StopTimeout, 30*time.Second)
	if w.RetryDelay == nil {
		w.RetryDelay = retryDelay
	}
	if w.Failed == nil {
		w.Failed = func(err error) { slog.Error("svcclient: a request of the worker failed", "error", err) }
	}
	if w.Source == nil || w.Handler == nil || w.Lease < time.Millisecond {
		return errors.New("svcclient: the Worker lacks Source, Handler or a positive Lease, expected all of them")
	}
	handlers, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	context.AfterFunc(ctx, func() { time.AfterFunc(w.StopTimeout, func() { cancel(ErrStopped) }) })
	r := &run{Worker: w, stop: ctx, handlers: handlers, slots: make(chan struct{}, max(w.Concurrency, 1))}
	r.claimAll()
	r.claims.Wait()
	return nil
}

func retryDelay(attempt int) time.Duration {
	return min(time.Second<<min(max(attempt-1, 0), 6), time.Minute)
}

// run is a worker at work.
type run struct {
	Worker
	stop     context.Context // Ends at the stop.
	handlers context.Context // Ends when a stop waits no longer.
	claims   sync.WaitGroup
	slots    chan struct{} // Holds an element for each message without a result.
}

// longestClaim is longer than the service waits for a message.
const longestClaim = 2 * time.Minute

// claimAll claims messages until the stop. After an error it waits longer each time, up to 10 s.
func (r *run) claimAll() {
	for wait := time.Duration(0); ; {
		select {
		case <-time.After(wait):
		case <-r.stop.Done():
		}
		r.slots <- struct{}{} // Waits for a free slot. After a stop the handlers end in time.
		<-r.slots
		if r.stop.Err() != nil {
			return
		}
		claimedAt := time.Now()
		claim, err := try(r, longestClaim, func(ctx context.Context) (Claim, error) {
			return r.Source.Claim(ctx, cap(r.slots)-len(r.slots), r.Lease)
		})
		switch {
		case err != nil:
			wait = min(max(wait, r.Poll)*2, 10*time.Second)
		case len(claim.Messages) == 0:
			wait = r.Poll
		default:
			wait = 0
			for range claim.Messages {
				r.slots <- struct{}{}
			}
			r.claims.Add(1)
			go r.work(claim, claimedAt)
		}
	}
}

// try makes a request to the source, and reports its error. A stop does not cancel the request: the source might have
// claimed messages, or have written a result.
func try[T any](r *run, timeout time.Duration, request func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.stop), timeout)
	defer cancel()
	answer, err := request(ctx)
	if err != nil {
		r.Failed(err)
	}
	return answer, err
}

// task is the work on a message.
type task struct {
	message PulledMessage
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

// work handles the messages of a claim, renews its lease, and gives back what is left.
func (r *run) work(claim Claim, claimedAt time.Time) {
	defer r.claims.Done()
	if r.Claimed != nil {
		r.Claimed(claim.Messages)
	}
	lease, lose := context.WithCancelCause(r.handlers)
	defer lose(nil)
	// The lease ends by this timer, even if a renewal hangs.
	end := time.AfterFunc(time.Until(claimedAt.Add(r.Lease)), func() { lose(ErrLeaseLost) })
	defer end.Stop()
	var tasks []*task
	chains := map[string][]*task{}
	for _, message := range claim.Messages {
		t := &task{message: message}
		t.ctx, t.cancel = context.WithCancelCause(lease)
		chain := "id " + message.ID
		if message.AggregateID != nil {
			chain = "of " + *message.AggregateID
		}
		tasks, chains[chain] = append(tasks, t), append(chains[chain], t)
	}
	hasLeft := make(chan bool, len(chains))
	for _, chain := range chains {
		go func() { hasLeft <- r.handleChain(lease, claim, chain) }()
	}
	ticker := time.NewTicker(r.Lease / 3)
	defer ticker.Stop()
	isLeft := false
	for running := len(chains); running > 0; {
		select {
		case left := <-hasLeft:
			running--
			isLeft = isLeft || left
		case renewedAt := <-ticker.C:
			kept, err := try(r, r.Lease/3, func(ctx context.Context) ([]string, error) {
				return r.Source.Renew(ctx, claim, r.Lease)
			})
			if err != nil {
				continue // The next renewal may succeed, until the end of the lease.
			}
			end.Reset(time.Until(renewedAt.Add(r.Lease)))
			for _, t := range tasks {
				if !slices.Contains(kept, t.message.ID) {
					t.cancel(ErrLeaseLost)
				}
			}
		}
	}
	if isLeft {
		_, _ = try(r, r.Lease/3, func(ctx context.Context) (any, error) { return nil, r.Source.Release(ctx, claim) })
	}
}

// handleChain handles messages in order until a message is not done. It reports whether it leaves messages that must be
// given back.
func (r *run) handleChain(lease context.Context, claim Claim, chain []*task) (isLeft bool) {
	last := ResultDone
	for _, t := range chain {
		startedAt := time.Now()
		result := ResultReleased
		if last == ResultDone {
			result = r.handle(lease, claim, t)
			last = result
		}
		if result == ResultReleased && (context.Cause(lease) == ErrLeaseLost || context.Cause(t.ctx) == ErrLeaseLost) {
			result = ResultLost
		}
		isLeft = isLeft || result == ResultReleased && last != ResultRetry && last != ResultDead
		t.cancel(nil)
		if r.Ended != nil {
			r.Ended(t.message, result, time.Since(startedAt))
		}
		<-r.slots
	}
	return isLeft
}

// handle returns ResultReleased if the message was not handled before a stop or the end of its lease.
func (r *run) handle(lease context.Context, claim Claim, t *task) Result {
	if r.stop.Err() != nil || t.ctx.Err() != nil {
		return ResultReleased
	}
	// The transaction has the context of the lease, not of the message: a renewal after the acknowledgement does not find
	// the message, and must not cancel the commit.
	isHeld, err := r.Source.Handled(lease, claim, t.message.ID, func(tx *sql.Tx) (err error) {
		defer func() {
			if panicked := recover(); panicked != nil {
				err = fmt.Errorf("the handler panicked: %v", panicked)
			}
		}()
		if err = errors.Join(r.Handler(t.ctx, t.message, tx), context.Cause(t.ctx)); err != nil {
			_ = err.Error() // That of a nil pointer panics.
		}
		return err
	})
	switch {
	case err == nil && isHeld:
		return ResultDone
	case err == nil:
		return ResultLost
	case t.ctx.Err() != nil:
		return ResultReleased
	}
	failure := &Failure{Delay: r.RetryDelay(t.message.Attempt)}
	errors.As(err, &failure)
	failed := Failure{storable(err.Error()), max(failure.Delay, 0), failure.IsDead}
	if failed.IsDead {
		failed.Delay = r.RetryDelay(t.message.Attempt) // Over HTTP it comes again.
	}
	result, err := try(r, r.Lease/3, func(ctx context.Context) (Result, error) {
		return r.Source.Fail(ctx, claim, t.message.ID, failed)
	})
	if err != nil {
		return ResultLost // Its lease ends, and it comes again.
	}
	return result
}
