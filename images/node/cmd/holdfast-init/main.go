// Command holdfast-init is holdfast-node without the Kubernetes components. The small binary saves memory in PID 1, and start-up
// time in the health check, which runs every few seconds.
// It executes the full binary for all other applets, so that both accept the same command line.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"holdfast.dev/node/internal/applet"
)

const fullBinary = "/usr/lib/holdfast/holdfast-node"

func main() {
	builtin := applet.Builtin()
	args := os.Args
	_, byName := builtin[filepath.Base(args[0])]
	_, byArgument := builtin[append(args, "", "")[1]]
	if !byName && !byArgument && len(args) > 1 {
		err := syscall.Exec(fullBinary, args, os.Environ())
		fmt.Fprintf(os.Stderr, "%s: %v\n", fullBinary, err)
		os.Exit(applet.ExitFailed)
	}
	os.Exit(applet.Dispatch(builtin, args))
}
