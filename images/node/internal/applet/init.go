package applet

import (
	"errors"
	"fmt"
	"os"

	"holdfast.dev/node/internal/layout"
	"holdfast.dev/node/internal/node"
	"holdfast.dev/node/internal/settings"
)

// runInit runs the node; it is PID 1 of the container.
func runInit([]string) int {
	s, err := settings.FromEnv(os.Getenv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "holdfast-node: %v\n", err)
		return ExitManualAction
	}
	if err := node.New(layout.Default(), s).Main(); err != nil {
		fmt.Fprintf(os.Stderr, "holdfast-node: %v\n", err)
		if errors.As(err, new(node.ManualActionError)) {
			return ExitManualAction
		}
		return ExitFailed
	}
	return ExitOK
}
