package applet

import (
	"fmt"
	"time"

	"holdfast.dev/node/internal/layout"
	"holdfast.dev/node/internal/status"
)

// runHealth asks the supervisor, which watches all the time: it costs nothing and cannot hang.
func runHealth([]string) int {
	return health(layout.Default().StatusSocket())
}

func health(socket string) int {
	entries, err := status.Ask(socket, 2*time.Second)
	if err != nil {
		fmt.Printf("the supervisor does not answer: %v\n", err)
		return ExitFailed
	}
	if faults := status.Faults(entries); len(faults) > 0 {
		fmt.Println(explain(faults))
		return ExitFailed
	}
	fmt.Println("ready")
	return ExitDone
}
