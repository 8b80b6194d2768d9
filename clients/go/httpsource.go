package svcclient

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// HTTPOptions are the options of [HTTPSource].
type HTTPOptions struct {
	// Header has the credentials of inbox.pull.auth, such as Authorization: Bearer.
	Header http.Header
	// Wait is the longest wait of the service for a message, at most a minute; default 20 s.
	Wait time.Duration
	// Client is [http.DefaultClient] by default.
	Client *http.Client
}

// HTTPSource takes messages over HTTP, for every database. The URL is that of the pull routes, such as
// http://svc:8080/pull, and the source has consumption: pull. The service decides when a message is dead
// (inbox.pull.maxAttempts): a [Dead] is a failed attempt with its reason, and so is a message that is given back.
func HTTPSource(pullURL, source string, options HTTPOptions) Source {
	options.Wait = cmp.Or(options.Wait, 20*time.Second)
	options.Client = cmp.Or(options.Client, http.DefaultClient)
	return &httpSource{options, source, strings.TrimSuffix(pullURL, "/") + "/" + url.PathEscape(source) + "/"}
}

type httpSource struct {
	HTTPOptions
	source, base string
}

func (s *httpSource) Claim(ctx context.Context, max int, lease time.Duration) (Claim, error) {
	leaseMs, waitMs := lease.Milliseconds(), s.Wait.Milliseconds()
	answer, err := s.post(ctx, "claim", map[string]any{"max": max, "leaseMs": leaseMs, "waitMs": waitMs})
	return Claim{answer.ClaimToken, answer.Messages}, err
}

func (s *httpSource) Renew(ctx context.Context, claim Claim, ids []string, lease time.Duration) ([]string, error) {
	leaseMs := lease.Milliseconds()
	answer, err := s.post(ctx, "extend", map[string]any{"claimToken": claim.Token, "ids": ids, "leaseMs": leaseMs})
	return answer.Extended, err
}

func (s *httpSource) Handled(ctx context.Context, claim Claim, id string, handle func(tx *sql.Tx) error) (bool, error) {
	if err := handle(nil); err != nil {
		return false, err
	}
	answer, err := s.post(ctx, "ack", map[string]any{"claimToken": claim.Token, "ids": []string{id}})
	return slices.Contains(answer.Acknowledged, id), err
}

func (s *httpSource) Retry(ctx context.Context, claim Claim, id string, delay time.Duration, reason string) error {
	fields := map[string]any{"claimToken": claim.Token, "ids": []string{id}, "error": reason}
	fields["delayMs"] = delay.Milliseconds()
	_, err := s.post(ctx, "nack", fields)
	return err
}

func (s *httpSource) Dead(ctx context.Context, claim Claim, id, reason string) (bool, error) {
	// Even if the message is dead now, the service has released the later ones of its aggregate.
	return false, s.Retry(ctx, claim, id, 0, reason)
}

func (s *httpSource) Release(ctx context.Context, claim Claim, ids []string) error {
	_, err := s.post(ctx, "nack", map[string]any{"claimToken": claim.Token, "ids": ids})
	return err
}

// answer has the fields of all operations.
type answer struct {
	ClaimToken             string
	Messages               []PulledMessage
	Acknowledged, Extended []string
}

// answerTime is how long an answer may take beyond the wait.
const answerTime = 10 * time.Second

func (s *httpSource) post(ctx context.Context, operation string, fields map[string]any) (got answer, err error) {
	body, err := json.Marshal(fields)
	if err != nil {
		return got, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Wait+answerTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+operation, bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	if s.Header != nil {
		request.Header = s.Header.Clone()
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.Client.Do(request)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return got, err
	}
	// 409: none of the messages is held any more, and the lists say so.
	if status := response.StatusCode; status != http.StatusOK && status != http.StatusConflict {
		return got, fmt.Errorf("svcclient: %s of %s answered %d, expected 200: %.200s", operation, s.source, status, text)
	}
	var field *json.UnmarshalTypeError // What is not a text is no header.
	if err := json.Unmarshal(text, &got); err != nil && !errors.As(err, &field) {
		return got, fmt.Errorf("svcclient: %s of %s answered %.200q, expected JSON: %w", operation, s.source, text, err)
	}
	return got, nil
}
