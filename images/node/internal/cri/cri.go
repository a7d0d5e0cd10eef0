// Package cri asks the container runtime what it has and tells it to stop what runs.
package cri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Client is a connection to one runtime; it is made on first use and again when it breaks.
type Client struct {
	images  runtime.ImageServiceClient
	runtime runtime.RuntimeServiceClient
}

// New prepares a client for a unix socket.
func New(socket string) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// The default backs off to minutes, longer than the runtime takes to come back.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: quickBackoff}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, err
	}
	return &Client{runtime.NewImageServiceClient(conn), runtime.NewRuntimeServiceClient(conn)}, nil
}

// Ready returns nil when the runtime and the pod network answer.
func (c *Client) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := c.runtime.Status(ctx, &runtime.StatusRequest{})
	if err != nil {
		return err
	}
	for _, condition := range answer.GetStatus().GetConditions() {
		if !condition.GetStatus() {
			return fmt.Errorf("%s: %s %s", condition.GetType(), condition.GetReason(), condition.GetMessage())
		}
	}
	return nil
}

// ImageID returns the config digest of an image, empty when it is not there.
func (c *Client) ImageID(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := c.images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: name}})
	if err != nil {
		return "", err
	}
	return answer.GetImage().GetId(), nil
}

// StopAll asks every running container to end, all at the same time, and returns when they have or the context ends.
func (c *Client) StopAll(ctx context.Context, grace time.Duration) error {
	running := runtime.ContainerState_CONTAINER_RUNNING
	list, err := c.runtime.ListContainers(ctx, &runtime.ListContainersRequest{
		Filter: &runtime.ContainerFilter{State: &runtime.ContainerStateValue{State: running}},
	})
	if err != nil {
		return err
	}
	errs := make([]error, len(list.GetContainers()))
	var wg sync.WaitGroup
	for i, container := range list.GetContainers() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, errs[i] = c.runtime.StopContainer(ctx, &runtime.StopContainerRequest{
				ContainerId: container.GetId(), Timeout: int64(grace.Seconds()),
			})
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}
