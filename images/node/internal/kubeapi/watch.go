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

// Watch keeps the set of objects that the query selects and calls each with all of them after every change, for as long as
// the context lives. A broken connection is made again and the set read anew, so that nothing deleted meanwhile lingers.
func (c *Client) Watch(ctx context.Context, query Query, each func([]Object)) {
	const least, most = 50 * time.Millisecond, 2 * time.Second
	for pause := least; ctx.Err() == nil; pause = min(2*pause, most) {
		if c.watchOnce(ctx, query, each) == nil {
			pause = least
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (c *Client) watchOnce(ctx context.Context, query Query, each func([]Object)) error {
	set, version, err := c.list(ctx, query)
	if err != nil {
		return err
	}
	tell := func() { each(slices.Collect(maps.Values(set))) }
	tell()
	// The server ends the stream after this time, which also notices a connection that died silently.
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
			set[event.Object.Metadata.Name] = event.Object
		case "DELETED":
			delete(set, event.Object.Metadata.Name)
		default:
			return fmt.Errorf("watch ended: %s", event.Object.Raw)
		}
		tell()
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
	set := map[string]Object{}
	for _, item := range list.Items {
		set[item.Metadata.Name] = item
	}
	return set, list.Metadata.ResourceVersion, nil
}
