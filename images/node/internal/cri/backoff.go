package cri

import (
	"time"

	"google.golang.org/grpc/backoff"
)

var connectBackoff = backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}
