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

// The protocol: the client writes one line, "once" or "follow"; the server answers with one JSON entry a line, all current
// ones first, and after "follow" every later one until either side hangs up.
const (
	askOnce   = "once\n"
	askFollow = "follow\n"
)

// Serve answers on a unix socket until the context ends.
func Serve(ctx context.Context, path string, board *Board) error {
	// Left by a process that was killed: nobody can be listening, this is the only supervisor in here.
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
			go answer(ctx, conn, board)
		}
	}()
	return nil
}

func answer(ctx context.Context, conn net.Conn, board *Board) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	reader := bufio.NewReader(conn)
	request, err := reader.ReadString('\n')
	if err != nil {
		return
	}
	encoder := json.NewEncoder(conn)
	if request != askFollow {
		for _, entry := range board.Snapshot() {
			if encoder.Encode(entry) != nil {
				return
			}
		}
		return
	}
	current, later, leave := board.Follow()
	defer leave()
	// The client says nothing more: the end of this read is its hanging up.
	go func() { _, _ = reader.ReadByte(); leave() }()
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

// Ask returns the current entries.
func Ask(path string, timeout time.Duration) ([]Entry, error) {
	conn, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var entries []Entry
	err = read(conn, askOnce, func(entry Entry) bool {
		entries = append(entries, entry)
		return true
	})
	return entries, err
}

// Watch calls each for every entry, current and later, until it returns false (nil), the server hangs up or the context ends
// (an error). It waits for the socket to appear.
func Watch(ctx context.Context, path string, each func(Entry) bool) error {
	conn, err := dial(ctx, path)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	done := false
	err = read(conn, askFollow, func(entry Entry) bool {
		done = !each(entry)
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
	return errors.New("the node's supervisor hung up")
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	// The socket appears within milliseconds of the node's start; there is no event to wait on before it.
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

func read(conn net.Conn, request string, each func(Entry) bool) error {
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
		if !each(entry) {
			return nil
		}
	}
	return scanner.Err()
}
