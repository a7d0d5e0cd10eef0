package status

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Requests of the protocol. The client writes one line. The server answers with JSON lines, one for each current entry. After
// requestSubscription it continues with later entries until one side closes the connection.
const (
	requestSnapshot     = "once\n"
	requestSubscription = "follow\n"
)

// Serve serves the entries of a tracker on a Unix socket until the context ends.
func Serve(ctx context.Context, path string, tracker *Tracker) error {
	// The socket may exist since an earlier, killed supervisor. A container has one supervisor, so no process uses it.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveConn(ctx, conn, tracker)
		}
	}()
	return nil
}

func serveConn(ctx context.Context, conn net.Conn, tracker *Tracker) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	reader := bufio.NewReader(conn)
	request, err := reader.ReadString('\n')
	if err != nil {
		return
	}
	encoder := json.NewEncoder(conn)
	if request != requestSubscription {
		for _, entry := range tracker.Snapshot() {
			if encoder.Encode(entry) != nil {
				return
			}
		}
		return
	}
	current, later, unsubscribe := tracker.Subscribe()
	defer unsubscribe()
	// The client sends nothing else, so this read returns when the client closes the connection.
	go func() { _, _ = reader.ReadByte(); unsubscribe() }()
	for _, entry := range current {
		if encoder.Encode(entry) != nil {
			return
		}
	}
	for entry := range later {
		if encoder.Encode(entry) != nil {
			return
		}
	}
}

// Get returns the current entries from a status socket.
func Get(path string, timeout time.Duration) ([]Entry, error) {
	conn, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var entries []Entry
	err = readEntries(conn, requestSnapshot, func(entry Entry) bool {
		entries = append(entries, entry)
		return true
	})
	return entries, err
}

// Watch waits for the socket and calls onEntry for each current and later entry. It returns nil when onEntry returns false, and
// an error when the server closes the connection or the context ends.
func Watch(ctx context.Context, path string, onEntry func(Entry) bool) error {
	conn, err := dial(ctx, path)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	done := false
	err = readEntries(conn, requestSubscription, func(entry Entry) bool {
		done = !onEntry(entry)
		return !done
	})
	switch {
	case done:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	return errors.New("supervisor: closed the status connection")
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	// The supervisor creates the socket milliseconds after the start of the node; until then, polling is the only way.
	for {
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func readEntries(conn net.Conn, request string, onEntry func(Entry) bool) error {
	if _, err := conn.Write([]byte(request)); err != nil {
		return err
	}
	scanner := bufio.NewScanner(conn)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var entry Entry
		if err := json.Unmarshal(scanner.Bytes(), &entry); err != nil {
			return err
		}
		if !onEntry(entry) {
			return nil
		}
	}
	return scanner.Err()
}
