package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Watch calls onChange with all objects that the query selects, first with the current ones and then after each change, until
// the context ends. After a broken connection it lists the objects again, so that it drops objects that were deleted meanwhile.
func (c *Client) Watch(ctx context.Context, query Query, onChange func([]Object)) {
	const minDelay, maxDelay = 50 * time.Millisecond, 2 * time.Second
	for delay := minDelay; ctx.Err() == nil; delay = min(2*delay, maxDelay) {
		if c.watchOnce(ctx, query, onChange) == nil {
			delay = minDelay
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

func (c *Client) watchOnce(ctx context.Context, query Query, onChange func([]Object)) error {
	objects, version, err := c.list(ctx, query)
	if err != nil {
		return err
	}
	notify := func() { onChange(slices.Collect(maps.Values(objects))) }
	notify()
	// The server ends the stream after timeoutSeconds. The client timeout detects a connection that broke silently.
	values := url.Values{"watch": {"1"}, "resourceVersion": {version}, "timeoutSeconds": {"300"}}
	ctx, cancel := context.WithTimeout(ctx, 310*time.Second)
	defer cancel()
	response, err := c.send(ctx, http.MethodGet, query.url(values), "", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	for {
		var event struct {
			Type   string `json:"type"`
			Object Object `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			objects[event.Object.Metadata.Name] = event.Object
		case "DELETED":
			delete(objects, event.Object.Metadata.Name)
		default:
			return fmt.Errorf("watch ended: %s", event.Object.Raw)
		}
		notify()
	}
}

func (c *Client) list(ctx context.Context, query Query) (map[string]Object, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data, err := c.Do(ctx, http.MethodGet, query.url(url.Values{}), "", nil)
	if err != nil {
		return nil, "", err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []Object `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, "", err
	}
	objects := map[string]Object{}
	for _, item := range list.Items {
		objects[item.Metadata.Name] = item
	}
	return objects, list.Metadata.ResourceVersion, nil
}
