package svctest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// DevOptions are the options of [RunDev]. Zero values are the defaults.
type DevOptions struct {
	// Binary is the program svc, or its svc.js, which Node.js runs. The default is the variable SVC_BIN.
	Binary string
	// Receiver gets every message if there is no Config.
	Receiver *Receiver
	// Config is the text of svc.yml.
	Config string
	// Env has more variables, such as SVC_OUTBOX_POLLINTERVALMS=50.
	Env []string
	// StartTimeout is two minutes by default: the first start creates a database.
	StartTimeout time.Duration
}

// Dev is a service that runs.
type Dev struct {
	// URL is the address of the service, such as http://127.0.0.1:41234.
	URL string
	// DatabaseURL is the address of its PostgreSQL, postgres://…
	DatabaseURL string

	output *output
}

// Output returns what the service has printed.
func (d *Dev) Output() string { return d.output.String() }

// RunDev starts svc dev, with a PostgreSQL of its own, in a folder of its own. It returns when the service is ready.
// The end of the test stops the service. The test is skipped if neither Binary nor SVC_BIN is set.
func RunDev(t testing.TB, options DevOptions) *Dev {
	t.Helper()
	if options.Binary == "" {
		options.Binary = os.Getenv("SVC_BIN")
	}
	if options.Binary == "" {
		t.Skip("SVC_BIN is not set, expected the path of the program svc")
	}
	if options.StartTimeout == 0 {
		options.StartTimeout = 2 * time.Minute
	}
	if options.Config == "" {
		options.Config = defaultConfig(options.Receiver)
	}
	port, err := freePort()
	if err != nil {
		t.Fatalf("no port is free: %v", err)
	}
	folder := newFolder(t)
	if err := os.WriteFile(filepath.Join(folder, "svc.yml"), []byte(options.Config), 0o644); err != nil {
		t.Fatalf("svc.yml cannot be written: %v", err)
	}
	d := &Dev{URL: fmt.Sprintf("http://127.0.0.1:%d", port), output: &output{}}
	command := exec.Command(options.Binary, "dev")
	if strings.HasSuffix(options.Binary, ".js") {
		command = exec.Command("node", options.Binary, "dev")
	}
	command.Dir = folder
	command.Env = append(append(os.Environ(), fmt.Sprintf("SVC_SERVER_HTTPPORT=%d", port)), options.Env...)
	command.Stdout, command.Stderr = d.output, d.output
	command.WaitDelay = 5 * time.Second
	if err := command.Start(); err != nil {
		t.Fatalf("%s does not start: %v", options.Binary, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	t.Cleanup(func() { stop(command, ended) })
	d.awaitStart(t, ended, options.StartTimeout)
	address, err := os.ReadFile(filepath.Join(folder, ".svc", "database-url"))
	if err != nil {
		t.Fatalf("svc dev has not written the address of its database: %v", err)
	}
	d.DatabaseURL = strings.TrimSpace(string(address))
	return d
}

func (d *Dev) awaitStart(t testing.TB, ended <-chan struct{}, timeout time.Duration) {
	t.Helper()
	deadline := time.After(timeout)
	for !strings.Contains(d.Output(), "svc is running.") {
		select {
		case <-ended:
			t.Fatalf("svc dev ended before it was ready:\n%s", d.Output())
		case <-deadline:
			t.Fatalf("svc dev was not ready after %v:\n%s", timeout, d.Output())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func stop(command *exec.Cmd, ended <-chan struct{}) {
	_ = command.Process.Signal(os.Interrupt)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		_ = command.Process.Kill()
		<-ended
	}
}

func defaultConfig(receiver *Receiver) string {
	address := "${RECEIVER_URL}" // The receiver of svc dev, which prints deliveries.
	if receiver != nil {
		address = receiver.URL
	}
	return `destinations:
  receiver:
    baseUrl: ` + address + `
    path: /
routes:
  - topicPattern: "**"
    destination: receiver
`
}

// newFolder makes a folder that others may enter: if this process is root, PostgreSQL runs as another user.
func newFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "svc-dev-")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
		err = os.Chmod(folder, 0o755)
	}
	if err != nil {
		t.Fatalf("no folder for svc dev: %v", err)
	}
	return folder
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// output is what a process prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(part []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(part)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
