package applet

import (
	"fmt"
	"time"

	"holdfast.dev/node/internal/layout"
	"holdfast.dev/node/internal/status"
)

// runHealth reads the status from the supervisor, which monitors all components. It starts no check itself, so it is fast.
func runHealth([]string) int {
	return checkHealth(layout.Default().StatusSocket())
}

func checkHealth(socket string) int {
	entries, err := status.Get(socket, 2*time.Second)
	if err != nil {
		fmt.Printf("supervisor: does not answer: %v\n", err)
		return ExitFailed
	}
	if unhealthy := status.Unhealthy(entries); len(unhealthy) > 0 {
		fmt.Println(formatEntries(unhealthy))
		return ExitFailed
	}
	fmt.Println("ready")
	return ExitOK
}
