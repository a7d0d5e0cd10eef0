package applet

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"holdfast.dev/node/internal/layout"
	"holdfast.dev/node/internal/status"
)

// runWait prints status entries as JSON lines until the node reaches a level.
func runWait(args []string) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	level := flags.String("for", "ready", "level to wait for: "+strings.Join(slices.Sorted(maps.Keys(status.Levels)), ", "))
	timeout := flags.Duration("timeout", 60*time.Second, "fail after this time")
	if err := flags.Parse(args[1:]); err != nil {
		return ExitUsage
	}
	if _, known := status.Levels[*level]; !known || flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "holdfast-node wait: --for must be one of %v\n", slices.Sorted(maps.Keys(status.Levels)))
		return ExitUsage
	}
	return waitFor(layout.Default().StatusSocket(), *level, *timeout, json.NewEncoder(os.Stdout))
}

// outcome is the last line that `wait` prints.
type outcome struct {
	State   string         `json:"state"`
	Seconds float64        `json:"seconds"`
	Detail  string         `json:"detail,omitempty"`
	Missing []status.Entry `json:"missing,omitempty"`
}

func waitFor(socket, level string, timeout time.Duration, out *json.Encoder) int {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	entries, err := streamUntil(ctx, socket, level, out)
	result := outcome{State: "ready", Seconds: float64(time.Since(start).Milliseconds()) / 1000}
	code := ExitOK
	if err != nil {
		code = ExitFailed
		result.State, result.Missing, result.Detail = "failed", status.Missing(level, entries), err.Error()
		if errors.Is(err, context.DeadlineExceeded) {
			result.State, result.Detail = "timeout", formatEntries(result.Missing)
		}
	}
	_ = out.Encode(result)
	return code
}

// streamUntil prints entries until the node reaches the level. It reconnects if the supervisor closes the connection: the
// supervisor is restarting then, or the container is stopping, which also ends this process.
func streamUntil(ctx context.Context, socket, level string, out *json.Encoder) ([]status.Entry, error) {
	for {
		var entries []status.Entry
		err := status.Watch(ctx, socket, func(entry status.Entry) bool {
			_ = out.Encode(entry)
			entries = slices.DeleteFunc(entries, func(e status.Entry) bool { return e.Component == entry.Component })
			entries = append(entries, entry)
			return len(status.Missing(level, entries)) > 0
		})
		if err == nil || ctx.Err() != nil {
			return entries, err
		}
	}
}

func formatEntries(missing []status.Entry) string {
	var parts []string
	for _, entry := range missing {
		text := entry.Component + " is " + entry.State
		if entry.Detail != "" {
			text += " (" + entry.Detail + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
