// Package cri is a small client of the container runtime: readiness, image lookup, and stopping containers.
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

// Client calls one container runtime. It connects on first use and reconnects when the connection breaks.
type Client struct {
	images  runtime.ImageServiceClient
	runtime runtime.RuntimeServiceClient
}

// New returns a client for a Unix socket; it does not connect yet.
func New(socket string) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// The default backoff grows to two minutes, much longer than a restart of the runtime.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: connectBackoff}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, err
	}
	return &Client{runtime.NewImageServiceClient(conn), runtime.NewRuntimeServiceClient(conn)}, nil
}

// Ready returns nil if the runtime and the pod network are ready.
func (c *Client) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	response, err := c.runtime.Status(ctx, &runtime.StatusRequest{})
	if err != nil {
		return err
	}
	for _, condition := range response.GetStatus().GetConditions() {
		if !condition.GetStatus() {
			return fmt.Errorf("%s: %s %s", condition.GetType(), condition.GetReason(), condition.GetMessage())
		}
	}
	return nil
}

// ImageID returns the config digest of an image, or "" if the image does not exist.
func (c *Client) ImageID(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	response, err := c.images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: name}})
	if err != nil {
		return "", err
	}
	return response.GetImage().GetId(), nil
}

// StopAll stops all running containers in parallel. It returns when they have stopped or the context ends.
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
