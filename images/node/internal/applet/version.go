package applet

import (
	"fmt"

	"holdfast.dev/node/internal/release"
)

func runVersion([]string) int {
	fmt.Println(string(release.JSON()))
	return ExitOK
}
